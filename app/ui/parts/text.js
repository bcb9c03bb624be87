// A text of one span per token, and the strip above it: what every painted text is made of. Exports nothing.
// A character that several tokens spell is written once, at the token that completes it.
// Everything a reader supplied goes through textContent or a text node, never through markup.

const home = (text, i) => text.spelled.get(i)?.at ?? i // where a token is written
const token = (text, i) => text.spans.get(home(text, i))
const index = (node) => {
  const span = node.closest?.("[data-i]")
  return span ? Number(span.dataset.i) : null
}

function element(kind, name, words, ...inside) {
  const node = document.createElement(kind)
  node.className = name
  if (words) node.textContent = words
  node.append(...inside)
  return node
}

function visible(piece, spaces) {
  return spaces ? piece.replace(/ /g, "·").replace(/\t/g, "⇥\t").replace(/\n/g, "↵\n") : piece
}

// A token as a name: what it shows.
const shown = (piece) => visible(piece.trim() ? piece.trim() : piece, true).replace(/\n/g, "") || "∅"

function bytesOf(packed) {
  return Uint8Array.from(atob(packed), (c) => c.charCodeAt(0))
}

function write(root, own) {
  const { data } = own
  const text = root.querySelector(".text")
  const block = document.createElement("div")
  const breaks = new Map(data.breaks.map((at, n) => [at, n + 2]))
  const faint = new Set(data.faint)
  text.spelled = new Map()
  text.spans = new Map()
  for (const [first, stop, spelled] of data.characters) {
    const paints = data.paint.slice(first, stop)
    const paint = data.isolates ? paints.at(-1) : Math.max(...paints) // a group, or the strongest
    const one = { first, at: stop - 1, spelled, paint }
    for (let i = first; i < stop; i++) text.spelled.set(i, one)
  }
  data.pieces.forEach((part, i) => {
    const whole = text.spelled.get(i)
    const piece = whole?.spelled ?? part
    if (breaks.has(i)) block.append(element("span", "break", `window ${breaks.get(i)}: nothing before this line is read from here on`))
    if (whole && i < whole.at) return
    const lead = own.spaces || !piece.trim() ? "" : piece.match(/^\s*/)[0]
    if (lead) block.append(lead)
    const paint = whole?.paint ?? data.paint[i]
    const painted = paint >= 0 ? ` p c${paint} ${data.palette[paint].line ?? ""}` : ""
    const span = element("span", `t${painted}${faint.has(i) ? " faint" : ""}`, visible(piece.slice(lead.length), own.spaces))
    span.dataset.i = i
    text.spans.set(i, span)
    block.append(span)
  })
  text.replaceChildren(block)
  text.classList.toggle("code", data.code)
  text.classList.toggle("live", data.clickable)
}

function ink(root, data, dark) {
  const rules = data.palette.map((p, n) => `.c${n} { --ink: ${dark ? p.dark : p.light}; --mix: ${dark ? p.mix_dark : p.mix}%; }`)
  root.querySelector("style.ink").textContent = rules.join("\n")
}

function legend(root, own) {
  const { data } = own
  const box = root.querySelector(".card .legend") ?? root.querySelector(".legend")
  box.replaceChildren()
  if (data.legend_title) box.append(element("div", "head", data.legend_title))
  const items = data.palette.map((p, n) => {
    const swatch = element("span", `swatch t p c${n} ${p.line ?? ""}`, p.tag)
    return element("div", "item", "", swatch, element("span", "name", p.name), element("span", "note", p.note ?? ""))
  })
  box.append(...(data.isolates ? [choices(root, own, items)] : items))
  for (const [mark, name] of data.crossed ? [["key", "read by the token under the pointer"], ["reader", "reads it later"]] : [])
    box.append(element("div", "item", "", element("span", `swatch t ${mark}`, "Aa"), element("span", "name", name)))
}

// The classes as one list: arrow keys go over it, Enter or a click isolates one, and once more releases it.
function choices(root, own, items) {
  const list = element("div", "items", "", ...items), chosen = own.data.isolate ?? null
  list.setAttribute("role", "listbox")
  list.setAttribute("aria-label", own.data.legend_title)
  items.forEach((item, n) => {
    item.setAttribute("role", "option")
    item.setAttribute("aria-selected", chosen === n)
    item.tabIndex = n === (chosen ?? 0) ? 0 : -1
    item.onclick = () => isolate(root, own, chosen === n ? null : n)
    item.onkeydown = (e) => {
      const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[e.key]
      if (step) items[(n + step + items.length) % items.length].focus()
      else if (e.key === "Enter" || e.key === " ") item.click()
      else return
      e.preventDefault()
    }
  })
  return list
}

// Shown at once; the page follows with its charts and tables.
function isolate(root, own, n) {
  const held = root.querySelector(".legend [role=option]:focus") !== null
  own.data.isolate = n
  legend(root, own)
  if (held) root.querySelector(".legend [role=option][tabindex='0']").focus()
  marks(root, own)
  draw(root.querySelector(".strip"), own, root.querySelector(".text"))
  own.isolated?.()
  own.send("class", n ?? -1)
}

function marks(root, own) {
  const { data } = own
  const text = root.querySelector(".text")
  text.querySelectorAll(".chosen, .mark, .lock").forEach((s) => s.classList.remove("chosen", "mark", "lock"))
  const one = data.isolate !== null && data.isolate !== undefined
  text.classList.toggle("one", one)
  if (one) text.querySelectorAll(`.c${data.isolate}`).forEach((s) => s.classList.add("chosen"))
  const open = data.arcs[data.open]
  for (const i of open?.mark ?? []) token(text, i)?.classList.add("mark")
  if (own.locked !== null && own.locked !== undefined) token(text, own.locked)?.classList.add("lock")
}

// The next token that is written, `step` (1 or -1) from the one in use.
function stepped(own, text, step) {
  const last = own.data.pieces.length - 1, from = own.now ?? own.locked ?? -step
  let to = from + step
  while (to > 0 && to < last && home(text, to) === home(text, from)) to += step
  own.now = home(text, Math.min(last, Math.max(0, to)))
  token(text, own.now).scrollIntoView({ block: "nearest" })
  return own.now
}

function place(tip, at) {
  tip.hidden = false
  const { width, height } = tip.getBoundingClientRect()
  tip.style.left = `${Math.max(8, Math.min(innerWidth - width - 8, at.left))}px`
  tip.style.top = `${at.bottom + height + 12 > innerHeight ? at.top - height - 8 : at.bottom + 8}px`
}

// --- the strip --------------------------------------------------------------------------------------------------------

function path(svg, d, name) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", "path")
  node.setAttribute("d", d)
  node.setAttribute("class", name)
  svg.append(node)
  return node
}

// From a token to another over the strip. Its width is noted, as asking for it would lay the whole text out anew for
// every arc.
function bow(strip, own, key, query) {
  const width = own.wide, total = own.data.pieces.length
  const from = ((key + 0.5) / total) * width, to = ((query + 0.5) / total) * width
  const top = 54 - 95 * Math.sqrt(Math.abs(to - from) / Math.max(1, width))
  return { from, to, d: `M${from} 55 C${from} ${top} ${to} ${top} ${to} 55` }
}

function arcs(strip, own, tip) {
  const { data } = own
  const svg = strip.querySelector("svg"), root = strip.closest(".painted")
  strip.classList.toggle("bare", data.arcs.length === 0)
  svg.replaceChildren()
  const order = data.arcs.map((_, n) => n).sort((a, b) => (a === data.open) - (b === data.open))
  for (const n of order) {
    const arc = data.arcs[n], { from, to, d } = bow(strip, own, arc.key, arc.query)
    const line = path(svg, d, n === data.open ? "open" : "")
    const grip = path(svg, d, "grip")
    grip.onpointerenter = () => {
      line.classList.add("hover")
      tip.textContent = arc.label
      const { left, bottom, top } = strip.getBoundingClientRect()
      place(tip, { left: (from + to) / 2 + left, bottom, top })
    }
    grip.onpointerleave = () => { line.classList.remove("hover"); tip.hidden = true }
    grip.onclick = () => { tip.hidden = true; own.opened(n) }
  }
  strip.querySelectorAll(".peak").forEach((peak) => peak.remove())
  for (const i of data.peaks ?? []) {
    const peak = element("button", "peak")
    peak.type = "button"
    peak.tabIndex = -1
    peak.title = `go to “${own.called(i)}”, token ${i.toLocaleString("en")}`
    peak.setAttribute("aria-label", peak.title)
    peak.style.left = `${((i + 0.5) / data.pieces.length) * 100}%`
    peak.onclick = () => { scrollTo(root.querySelector(".text"), i); own.went?.(i) }
    strip.append(peak)
  }
}

// Each pixel has the mean of the tokens that it stands for.
function draw(strip, own, text) {
  const canvas = strip.querySelector("canvas"), { data } = own
  const scale = devicePixelRatio || 1, total = data.pieces.length
  canvas.width = Math.max(1, Math.round(own.wide * scale))
  canvas.height = Math.round(14 * scale)
  const dark = luminance(getComputedStyle(strip).getPropertyValue("--st-background-color")) < 0.4
  const inks = data.palette.map((p) => [...rgb(dark ? p.dark : p.light), Math.min(1, (dark ? p.mix_dark : p.mix) / 60)])
  const sums = new Float64Array(5 * canvas.width)
  const isolated = data.isolate ?? null
  for (let i = 0; i < total; i++) {
    const first = Math.floor((i / total) * canvas.width)
    const stop = Math.max(first + 1, Math.floor(((i + 1) / total) * canvas.width))
    const paint = data.paint[i], bare = paint < 0 || (isolated !== null && paint !== isolated)
    const alpha = bare ? 0 : inks[paint][3] * (own.kept?.(i) ?? 1)
    for (let x = first; x < stop; x++) {
      for (let c = 0; c < 3 && alpha; c++) sums[5 * x + c] += inks[paint][c] * alpha
      sums[5 * x + 3] += alpha
      sums[5 * x + 4]++
    }
  }
  const pen = canvas.getContext("2d"), image = pen.createImageData(canvas.width, canvas.height)
  for (let x = 0; x < canvas.width; x++) {
    const alpha = sums[5 * x + 3]
    for (let y = 0; y < canvas.height && alpha; y++) {
      const at = 4 * (y * canvas.width + x)
      for (let c = 0; c < 3; c++) image.data[at + c] = sums[5 * x + c] / alpha
      image.data[at + 3] = (255 * alpha) / sums[5 * x + 4]
    }
  }
  pen.putImageData(image, 0, 0)
  seen(strip, text)
}

function seen(strip, text) {
  const box = strip.querySelector(".seen"), all = text.scrollHeight || 1
  box.hidden = text.clientHeight >= all - 2
  box.style.left = `${(text.scrollTop / all) * 100}%`
  box.style.width = `${(text.clientHeight / all) * 100}%`
}

function scrollTo(text, i) {
  const span = token(text, i)
  if (span) text.scrollTop = span.offsetTop - text.clientHeight / 2
}

function rgb(colour) {
  const hex = colour.trim().match(/^#([0-9a-f]{6})/i)
  return hex ? [0, 2, 4].map((k) => parseInt(hex[1].slice(k, k + 2), 16)) : (colour.match(/\d+/g) ?? [255, 255, 255]).map(Number)
}

function luminance(colour) {
  const [r, g, b] = rgb(colour)
  return (0.2126 * r + 0.7152 * g + 0.0722 * b) / 255
}

const isDark = (root) => luminance(getComputedStyle(root).getPropertyValue("--st-background-color")) < 0.4

// The strip by keys: from mark to mark, each of which is a token; without marks by a tenth of the text.
function along(event, root, own, text) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key], count = own.data.pieces.length
  if (!step) return
  event.preventDefault()
  const stops = own.data.peaks?.length ? [...own.data.peaks].sort((a, b) => a - b) : Array.from({ length: 10 }, (_, n) => Math.floor((n * count) / 10))
  const now = own.stop ?? (step > 0 ? -1 : count)
  own.stop = step > 0 ? stops.find((i) => i > now) ?? stops.at(-1) : stops.findLast((i) => i < now) ?? stops[0]
  scrollTo(text, own.stop)
  if (own.data.peaks?.length) own.went?.(own.stop)
}

// Writes a text anew where it is another one, and draws all that belongs to it.
function paintAll(root, own, tip) {
  const { data } = own
  const text = root.querySelector(".text"), strip = root.querySelector(".strip")
  if (own.id !== data.id || !text.firstChild) {
    const stay = own.place === data.place ? text.scrollTop : 0
    Object.assign(own, { id: data.id, place: data.place, now: null })
    write(root, own)
    text.scrollTop = stay
  }
  ink(root, data, isDark(root))
  legend(root, own)
  marks(root, own)
  const over = () => {
    own.wide = strip.clientWidth
    arcs(strip, own, tip)
    draw(strip, own, text)
  }
  over()
  const canvas = root.querySelector("canvas")
  canvas.onclick = (e) => {
    const box = e.target.getBoundingClientRect()
    scrollTo(text, Math.floor(((e.clientX - box.left) / box.width) * data.pieces.length))
  }
  canvas.tabIndex = 0
  canvas.setAttribute("role", "button")
  canvas.setAttribute("aria-label", "the whole text: arrow keys go to the next mark, or on by a tenth")
  canvas.onkeydown = (e) => along(e, root, own, text)
  own.resize?.disconnect()
  own.resize = new ResizeObserver(over)
  own.resize.observe(strip)
}
