// The slider under a text: what is no longer read fades, and the loss moves. Exports nothing.
// `own.steps`: what a study measured at a few shares, the largest first; the slider snaps to them. A loss that is still
// computed is null; where none is measured, the rows say which part of the attention the kept keys hold.

function steps(sent) {
  return sent && { ...sent, kept: typeof sent.kept === "string" ? bytesOf(sent.kept) : sent.kept }
}

// How much of a token's far attention is still read, 0 to 1; of one that nothing reads from afar 1.
function keptAt(own, i) {
  // Of a long text only the first window was measured.
  if (i >= own.steps.tokens) return 1
  const byte = own.steps.kept[own.step_at * own.steps.tokens + i]
  return byte === 255 ? 1 : byte / 254
}

function keep(root, own) {
  const box = root.querySelector(".keep"), slider = box.querySelector("input"), text = root.querySelector(".text")
  const { data } = own
  box.hidden = !data.keep && !data.keep_waits
  slider.disabled = !data.keep
  box.querySelector(".covers").textContent = data.keep ? `${own.steps.covers}, ${tokens(own.steps.tokens)}` : ""
  if (!data.keep) {
    box.querySelector("output").textContent = data.keep_waits ?? ""
    return
  }
  slider.max = own.steps.rows.length - 1
  own.step_at = Math.min(own.step_at ?? 0, slider.max)
  slider.value = own.step_at
  const tell = () => {
    const row = own.steps.rows[own.step_at], dense = own.steps.rows[0]
    box.querySelector(".share").textContent = percent(row.share)
    slider.style.setProperty("--at", `${(100 * own.step_at) / Math.max(1, slider.max)}%`)
    slider.setAttribute("aria-valuetext", `keep ${percent(row.share)}`)
    const output = box.querySelector("output")
    output.dataset.loss = row.loss
    if (row.loss === undefined) output.replaceChildren(element("b", "", percent(row.held)), " of the attention")
    else if (row.loss === null) output.replaceChildren(`loss ${dense.loss.toFixed(2)} → `, element("b", "", "computing"))
    else output.replaceChildren(`loss ${dense.loss.toFixed(2)} → `, element("b", "", row.loss.toFixed(2)), " nats")
    const around = row.low === null ? "" : `, 95% interval ${change(row.low)} to ${change(row.high)}`
    const costs = Number.isFinite(row.loss) ? `: perplexity ${change(row.change)}${around}` : ""
    box.title = `${whole(row.keys)} tokens for each query and head, its best${costs}. No method chooses better by the scores. Fading is drawn in steps of 0.4%.`
  }
  const redraw = () => {
    own.due = null
    const began = performance.now()
    own.kept = own.step_at ? (i) => keptAt(own, i) : null
    fade(own, text)
    draw(root.querySelector(".strip"), own, text)
    tell()
    box.dataset.ms = (performance.now() - began).toFixed(1)
  }
  slider.oninput = () => {
    own.step_at = Number(slider.value)
    own.due ??= requestAnimationFrame(redraw)
  }
  redraw()
}

// Only what is in view is faded, so that a long text costs no more than a short one; scrolling fades the rest.
function fade(own, text) {
  own.spans ??= [...text.spans.entries()]
  const spans = own.spans, top = text.scrollTop - 40, bottom = text.scrollTop + text.clientHeight + 40
  let low = 0, high = spans.length
  while (low < high) {
    const middle = (low + high) >> 1
    if (spans[middle][1].offsetTop < top) low = middle + 1
    else high = middle
  }
  let stop = low, end = spans.length
  while (stop < end) {
    const middle = (stop + end) >> 1
    if (spans[middle][1].offsetTop <= bottom) stop = middle + 1
    else end = middle
  }
  for (let n = low; n < stop; n++) {
    const [i, span] = spans[n]
    span.style.opacity = own.kept ? 0.16 + 0.84 * own.kept(i) : ""
  }
}
