"""Models trained at softmax temperatures (Focal Attention)."""
