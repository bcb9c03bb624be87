"""What drives the app from outside or judges what it is given: the app's half of the verb `stress`."""
