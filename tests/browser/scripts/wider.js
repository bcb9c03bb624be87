// What stands out of the page on the right.
() => { const main = document.querySelector("[data-testid=stMain]"), edge = main.clientWidth;
  if (main.scrollWidth <= edge + 1 && document.documentElement.scrollWidth <= innerWidth) return [];
  return [...main.querySelectorAll("*")].filter(one => one.getBoundingClientRect().right > edge + 1).slice(0, 5).map(
    one => `${one.tagName} ${one.className} ${Math.round(one.getBoundingClientRect().right)}`) }
