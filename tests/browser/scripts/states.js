// key and label of every control that is shown -> its state as JSON; tabs that are open.
() => {
  const said = {}, kinds = "stSlider stSelectbox stMultiSelect stButtonGroup stCheckbox stNumberInput stTextInput";
  const own = kinds.split(" ").map(kind => `[data-testid=${kind}]`).join(",");
  for (const place of document.querySelectorAll("[data-testid=stMain], [data-testid=stSidebar]"))
    for (const one of place.querySelectorAll(own)) {
      if (!one.offsetParent || one.closest("[data-testid=stPopoverBody]")) continue;
      const keyed = one.closest("[class*=st-key-]"), label = one.querySelector("label")?.innerText || "";
      const key = (keyed ? /st-key-(\S+)/.exec(keyed.className)[1] : "") + " | " + label.split("\n")[0];
      const marks = [...one.querySelectorAll("[role=slider]")].map(each => each.getAttribute("aria-valuenow"));
      const on = [...one.querySelectorAll("[aria-checked=true], [aria-pressed=true]")].map(each => each.innerText);
      const tags = [...one.querySelectorAll("[data-baseweb=tag]")].map(each => each.innerText);
      const box = each => each.type === "checkbox" ? each.checked : each.value;
      const typed = [...one.querySelectorAll("input")].map(box);
      said[key] = JSON.stringify([one.dataset.testid, marks, on, tags, typed]);
    }
  for (const tab of document.querySelectorAll("[data-testid=stMain] [role=tab][aria-selected=true]"))
    said["tab " + tab.innerText] = "open";
  return said;
}
