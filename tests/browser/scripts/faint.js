// Words whose contrast with what lies behind them is under 1.6.
() => {
  const ON_COLOUR = "script, style, canvas, .annotation, .heatmap-label, .textpoint, [data-testid=stSliderThumbValue]";
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true }), known = {};
  const read = colour => known[colour] ??= (() => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data; return [r, g, b, a / 255] })();
  const over = (top, below) => [0, 1, 2].map(at => top[at] * top[3] + below[at] * (1 - top[3])).concat(1);
  const light = colour => colour.slice(0, 3).map(part => part / 255).map(
    part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4).reduce(
    (sum, part, at) => sum + part * [0.2126, 0.7152, 0.0722][at], 0);
  const faint = [];
  const look = (one, paper, alpha) => {
    const style = getComputedStyle(one);
    if (style.display === "none" || style.visibility === "hidden" || one.matches(ON_COLOUR)) return;
    paper = over(read(style.backgroundColor), paper); alpha *= Number(style.opacity);
    const said = [...one.childNodes].filter(node => node.nodeType === 3).map(node => node.data.trim()).join("");
    if (said && one.getClientRects().length) {
      const ink = [...read(one instanceof SVGElement ? style.fill : style.color)]; ink[3] *= alpha;
      if (ink[3] < 0.05) return;
      const [dark, bright] = [light(over(ink, paper)), light(paper)].sort((a, b) => a - b);
      const ratio = (bright + 0.05) / (dark + 0.05);
      if (ratio < 1.6) faint.push(`${said.slice(0, 40)} (${ratio.toFixed(2)})`);
    }
    const areas = [];  // rectangles of a drawing that were painted before: what lies behind its words
    for (const child of [...(one.shadowRoot?.children ?? []), ...one.children]) {
      const { left, right, top, bottom } = child.getBoundingClientRect(), x = (left + right) / 2, y = (top + bottom) / 2;
      const behind = areas.filter(area => area.left < x && x < area.right && area.top < y && y < area.bottom);
      look(child, behind.reduce((below, area) => over(area.colour, below), paper), alpha);
      const style = child.tagName === "rect" && getComputedStyle(child);
      if (!style || style.display === "none" || style.visibility === "hidden" || !/^(#|rgb|color|okl)/.test(style.fill)) continue;
      const colour = [...read(style.fill)]; colour[3] *= style.fillOpacity * style.opacity;
      areas.push({ left, right, top, bottom, colour });
    }
  };
  look(document.querySelector("[data-testid=stApp]"), [255, 255, 255, 1], 1);
  return faint;
}
