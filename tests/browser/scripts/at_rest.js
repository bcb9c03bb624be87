// Whether the script has ended and no code still loads (a skeleton).
() => document.querySelector("[data-testid=stApp]").dataset.testScriptState === "notRunning"
  && !document.querySelector("[data-testid=stSpinner], [data-testid=stSkeleton]")
