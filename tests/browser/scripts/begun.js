// Whether a script begins within so many milliseconds: window.begun.
patience => { window.begun = new Promise(done => {
  const look = new MutationObserver(() => { look.disconnect(); done(true) });
  look.observe(document.querySelector("[data-testid=stApp]"), { attributeFilter: ["data-test-script-state"] });
  setTimeout(() => { look.disconnect(); done(false) }, patience);
}) }
