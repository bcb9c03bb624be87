// The keys of the controls in the page's main part, in their order.
() => [...document.querySelectorAll("[data-testid=stMain] [class*=st-key-]")].filter(one =>
one.offsetParent && !one.closest("[data-testid=stPopoverBody]") && one.querySelectorAll(
"[class*=st-key-]").length === 0 && one.querySelector("[role=slider], input, [data-testid=stButtonGroup]"))
.map(one => /st-key-(\S+)/.exec(one.className)[1])
