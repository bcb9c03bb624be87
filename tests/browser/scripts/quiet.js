// Until the script has ended and nothing has been spinning for 100 ms.
patience => new Promise((done, failed) => {
  const from = performance.now(), drawn = "[data-testid=stApp][data-test-script-state=notRunning]";
  let since = from;
  const look = () => {
    const busy = document.querySelector("[data-testid=stSpinner], [data-testid=stStatusWidget]");
    const now = performance.now();
    if (busy || !document.querySelector(drawn)) since = now;
    if (now - since >= 100) done();
    else if (now - from > patience) failed(new Error("the page never came to rest"));
    else setTimeout(look, 20);
  };
  look();
})
