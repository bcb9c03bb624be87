// The charts of the page: how many traces each should have drawn, how many it has, and whether that is too few.
() => [...document.querySelectorAll(".js-plotly-plot")].filter(plot => plot.offsetParent).map(plot => {
  const seen = mark => { const place = mark.getBoundingClientRect(); return place.width > 0 || place.height > 0 };
  const drawn = [...plot.querySelectorAll("g.trace, g.hm")].filter(
    trace => [...trace.querySelectorAll("path, image")].some(seen)).length;
  const known = trace => trace.visible === true && [trace.z?.flat() ?? trace.y].flat().some(value => value != null);
  const wanted = plot._fullData ? plot._fullData.filter(known).length : 0;
  const gone = plot.querySelector(".no-webgl") !== null;
  const title = plot.closest("[class*=st-key-]")?.className.match(/st-key-(\S+)/)[1];
  return { title, wanted, drawn, blank: gone || wanted === 0 || drawn < wanted };
})
