// The menu in the corner of a chart, a table or a painted text: PNG, SVG and PDF with the title above and where it comes
// from below are made here; for its numbers, or to put it into the report, it asks the page.
// What is said reaches the picture as text nodes only.

const SPACE = "http://www.w3.org/2000/svg"
const EDGE = 16, TITLE = 40, LINE = 15
// What the style sheets of our own pictures set.
const LOOKS = ["fill", "fill-opacity", "stroke", "stroke-opacity", "stroke-width", "stroke-dasharray", "stroke-linejoin",
  "opacity", "font-size", "font-weight", "text-anchor", "dominant-baseline", "paint-order", "display", "visibility"]
// Files that were saved: the page sends one again as often as it is drawn.
const saved = new Set()

export default function ({ parentElement, data: sent, setTriggerValue }) {
  const data = sent?.[0]
  const root = parentElement.querySelector(".menu")
  if (!root || !data) return
  const picture = () => {
    const box = data.chart && document.querySelector(`.st-key-${CSS.escape(data.chart)}`)
    const layers = box ? layersOf(box) : []
    return layers.length ? stamped(layers, data, getComputedStyle(root)) : ""
  }
  const does = {
    PNG: () => png(picture(), (blob) => save(blob, `${data.name}.png`)),
    SVG: () => save(new Blob([picture()], { type: "image/svg+xml" }), `${data.name}.svg`),
    PDF: () => print(picture(), data.name),
    CSV: () => setTriggerValue("csv", true),
    "Numbers as a table": () => setTriggerValue("table", true),
    "Add to report": () => setTriggerValue("keep", picture() || " "),
  }
  const button = root.querySelector("button"), list = root.querySelector("[popover]")
  button.setAttribute("aria-label", `Export: ${data.title}`)
  list.replaceChildren(...data.offers.map((name) => {
    const item = document.createElement("button")
    Object.assign(item, { type: "button", role: "menuitem", textContent: name })
    item.onclick = () => { list.hidePopover(); does[name]() }
    return item
  }))
  button.onclick = () => list.togglePopover()
  list.ontoggle = ({ newState }) => {
    button.setAttribute("aria-expanded", newState === "open")
    if (newState === "open") unfold(list, button.getBoundingClientRect())
  }
  list.onkeydown = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key], items = [...list.children]
    if (!step) return
    event.preventDefault()
    items.at((items.indexOf(list.getRootNode().activeElement) + step) % items.length).focus()
  }
  if (data.file && !saved.has(data.file.id)) {
    saved.add(data.file.id)
    save(new Blob([data.file.text], { type: "text/csv" }), `${data.name}.csv`)
  }
}

// Under its button, or above it where the window ends; the first entry has the keys.
function unfold(list, at) {
  const below = at.bottom + list.offsetHeight < window.innerHeight
  list.style.top = `${below ? at.bottom : at.top - list.offsetHeight}px`
  list.style.left = `${Math.max(4, at.right - list.offsetWidth)}px`
  list.firstChild.focus()
}

// The browser prints the picture on a sheet of its size: its dialog saves that as PDF, letters stay letters.
function print(svg, name) {
  const frame = document.createElement("iframe")
  frame.className = "fs-print"
  frame.style.cssText = "position: fixed; width: 0; height: 0; border: 0"
  document.body.append(frame)
  const sheet = frame.contentDocument
  sheet.title = name
  sheet.body.append(sheet.importNode(new DOMParser().parseFromString(svg, "image/svg+xml").documentElement, true))
  const { width, height } = sheet.body.firstChild.getBoundingClientRect()
  const style = sheet.createElement("style")
  style.textContent = `@page { size: ${width}px ${height}px; margin: 0 } body { margin: 0 } svg { display: block }`
  sheet.head.append(style)
  frame.contentWindow.onafterprint = () => frame.remove()
  frame.contentWindow.print()
}

// The layers of a plot, or the pictures of one of our own parts, which has a root of its own.
function layersOf(box) {
  const plot = [...box.querySelectorAll(".js-plotly-plot svg.main-svg")]
  const inside = (root) => [...root.querySelectorAll("svg"),
    ...[...root.querySelectorAll("*")].flatMap((one) => (one.shadowRoot ? inside(one.shadowRoot) : []))]
  return plot.length ? plot : inside(box).filter((svg) => svg.getBoundingClientRect().width > 0)
}

// The layers where they stand, between the title and the footer.
function stamped(layers, data, look) {
  const ink = look.getPropertyValue("--st-text-color"), paper = look.getPropertyValue("--st-background-color")
  const boxes = layers.map((layer) => layer.getBoundingClientRect())
  const [left, top] = [Math.min(...boxes.map((box) => box.left)), Math.min(...boxes.map((box) => box.top))]
  const width = Math.round(Math.max(...boxes.map((box) => box.right)) - left)
  const height = Math.round(Math.max(...boxes.map((box) => box.bottom)) - top), room = Math.floor((width - 2 * EDGE) / 5.6)
  const names = legend(data.legend, width), head = TITLE + (names.at(-1)?.row + 1 || 0) * LINE
  const lines = data.footer.flatMap((line) => wrapped(line, room))
  const whole = node("svg", { xmlns: SPACE, width, height: head + height + lines.length * LINE + EDGE })
  whole.setAttribute("viewBox", `0 0 ${width} ${whole.getAttribute("height")}`)
  whole.append(node("rect", { width: "100%", height: "100%", fill: paper }))
  const said = (words, y, size, weight) => {
    const text = node("text", { x: EDGE, y, fill: ink, "font-family": "sans-serif", "font-size": size, "font-weight": weight })
    text.textContent = words
    whole.append(text)
  }
  said(data.title, 26, 17, 600)
  for (const { name, colour, x, row } of names) {
    const y = TITLE + row * LINE, word = node("text", { x: x + 18, y: y + 4, fill: ink, "font-family": "sans-serif", "font-size": 11 })
    word.textContent = name
    whole.append(node("rect", { x, y: y - 2, width: 14, height: 4, fill: colour || "none" }), word)
  }
  const moved = node("g", { transform: `translate(0,${head})` })
  layers.forEach((layer, at) => {
    const copy = layer.cloneNode(true), place = node("g", { transform: `translate(${boxes[at].left - left},${boxes[at].top - top})` })
    copy.removeAttribute("style")
    fitted(layer, copy)
    if (!layer.classList.contains("main-svg")) dressed(layer, copy, boxes[at])
    place.append(copy)
    moved.append(place)
  })
  whole.append(moved)
  lines.forEach((line, at) => said(line, head + height + (at + 0.7) * LINE, 10.5, 400))
  return new XMLSerializer().serializeToString(whole)
}

// Where the names of curves stand that have them beside the picture, [name, colour] each, in rows.
function legend(listed, width) {
  let x = EDGE, row = 0
  return listed.map(([name, colour]) => {
    const wide = 34 + 6.4 * name.length
    if (x > EDGE && x + wide > width) { x = EDGE; row++ }
    x += wide
    return { name, colour, x: x - wide, row }
  })
}

// A picture has no web font: words keep the width they have on the page, and the legend is not cut.
function fitted(layer, copy) {
  const copies = copy.querySelectorAll("text, tspan")
  layer.querySelectorAll("text, tspan").forEach((word, at) => {
    if (word.querySelector("tspan") || !word.textContent.trim()) return
    copies[at].setAttribute("textLength", word.getComputedTextLength())
    copies[at].setAttribute("lengthAdjust", "spacingAndGlyphs")
  })
  for (const cut of copy.querySelectorAll(".legend [clip-path]")) cut.removeAttribute("clip-path")
}

// A picture has no style sheet either: what it sets stands in the copy, its colours as every program reads them.
function dressed(layer, copy, { width, height }) {
  const every = (svg) => [svg, ...svg.querySelectorAll("*")], copies = every(copy)
  every(layer).forEach((one, at) => {
    const look = getComputedStyle(one)
    for (const name of LOOKS) copies[at].setAttribute(name, plain(look.getPropertyValue(name)))
    for (const name of ["class", "style", "tabindex"]) copies[at].removeAttribute(name)
  })
  for (const [name, value] of Object.entries({ width, height, "font-family": "sans-serif" })) copy.setAttribute(name, value)
}

const pixel = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true })
const plain = (value) => {
  if (!/^(color|ok|lab|lch|hsl)[a-z-]*\(/.test(value)) return value
  pixel.clearRect(0, 0, 1, 1)
  pixel.fillStyle = value
  pixel.fillRect(0, 0, 1, 1)
  const [red, green, blue, alpha] = pixel.getImageData(0, 0, 1, 1).data
  return `rgba(${red},${green},${blue},${(alpha / 255).toFixed(3)})`
}

function node(name, attributes) {
  const made = document.createElementNS(SPACE, name)
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value)
  return made
}

function wrapped(words, room) {
  const lines = [""], parts = new RegExp(`.{1,${Math.max(room, 1)}}`, "gu") // an address is one word, and long
  for (const word of words.split(" ").flatMap((each) => each.match(parts) ?? [""])) {
    if ((lines.at(-1) + word).length > room && lines.at(-1)) lines.push("")
    lines[lines.length - 1] += `${word} `
  }
  return lines
}

function png(svg, done) {
  const image = new Image()
  image.onload = () => {
    const canvas = document.createElement("canvas")
    canvas.width = 2 * image.width
    canvas.height = 2 * image.height
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height)
    canvas.toBlob(done, "image/png")
  }
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`
}

function save(blob, name) {
  const link = document.createElement("a")
  link.href = URL.createObjectURL(blob)
  link.download = name
  link.click()
  setTimeout(() => URL.revokeObjectURL(link.href), 10000)
}
