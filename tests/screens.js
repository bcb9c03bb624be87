// What a screen asks of who looks at it, with nothing opened: counted in the page.
() => {
  const main = document.querySelector("[data-testid=stMain]"), fold = innerHeight
  const seen = one => one.checkVisibility({ visibilityProperty: true }) && one.getClientRects().length > 0
  const above = one => { const box = one.getBoundingClientRect(); return box.top < fold && box.bottom > 0 }
  const every = (root, where) => [...root.querySelectorAll(where), ...[...root.querySelectorAll("*")].flatMap(
    part => part.shadowRoot ? every(part.shadowRoot, where) : [])]
  const shown = where => every(main, where).filter(seen)
  // Quotations are the reader's words.
  const words = one => one.innerText.replace(/“[^”]*”/g, " ").split(/\s+/).filter(word => /[\p{L}\p{N}]/u.test(word)).length
  const sum = ones => ones.reduce((total, one) => total + words(one), 0)

  const sentences = "h1, h2, h3, h4, [class^=fs-], [data-testid=stCaptionContainer], [data-testid=stAlert], .stMarkdown p"
  const said = shown(sentences).filter(one => !one.parentElement.closest(sentences)
    && !one.closest("button, a, label, [role=tab], [data-testid=stTab]"))
  const hints = shown("button[aria-label=Help]")
  const acts = "button, a[href], input, textarea, select, summary, [role=slider], [role=combobox], [role=listbox]"
  const skipped = "[role=tablist], .modebar, .js-plotly-plot, .curves, .painted .text, .peak, .row, [role=row], [role=grid]"
  // A control is counted once, by its outermost part; options of one choice are one each. Places on a strip and bars that
  // lead to their token are marks of the picture.
  const inside = one => { for (let up = one.parentNode; up; up = up.parentNode || up.host)
    if (up.matches?.(acts) || up.matches?.("[data-testid=stSelectbox] [role=combobox]")) return true
    return false }
  const left = one => { for (let up = one; up; up = up.parentNode || up.host) if (up.matches?.(skipped)) return true
    return false }
  const boxes = "[data-testid=stNumberInput], [data-testid=stSelectbox], [data-testid=stMultiSelect], [data-testid=stSlider], [data-testid=stFileUploader]"
  const controls = [...new Set(shown(acts).filter(one => !hints.includes(one) && !left(one) && !inside(one))
    .map(one => one.closest(boxes) || one))]
  const exports = controls.filter(one => /^(⋯|CSV|PNG|SVG|PDF|Keep|For a paper|Numbers as a table|Add to report)$/.test(
    one.innerText.replace(/[a-z_]+\n/, "").trim()))
  const pictures = shown(".js-plotly-plot, .worth.picture, .curves, .budgets, .routing, .painted, .contexts, .table, [data-testid=stDataFrame]")
  const answer = shown("h1")[0], body = document.querySelector(".stMainBlockContainer > *, .stMainBlockContainer")
  return {
    height: Math.round(main.scrollHeight), words: sum(said.filter(above)), lead: answer ? words(answer) : 0,
    controls: controls.length, fold: controls.filter(above).length, exports: exports.length,
    pictures: pictures.length, hints: hints.length,
    picture: Math.round(Math.min(...pictures.map(one => one.getBoundingClientRect().top), 9999)),
  }
}
