// One row of attention and the sharpness of all heads, redrawn from queries and keys while the temperature is dragged.
// The row is drawn in every frame; heads follow as far as a frame has time, so that a large model stays as quick.

const kept = new WeakMap()
// Milliseconds of a frame that heads may take.
const SLICE = 8
const LEVELS = [0.003, 0.01, 0.03, 0.1, 0.3]
const MOST = 6
const spelled = (count) => count < 9.95 ? count.toFixed(1) : Math.round(count).toLocaleString("en")
const visible = (piece) => piece.replace(/\n/g, "↵").trim() || "␣"
// A mark or a line break is told by what stands before it.
function told(pieces, key) {
  if (/[\p{L}\p{N}]/u.test(pieces[key])) return visible(pieces[key])
  const before = pieces.slice(0, key).findLast((piece) => piece.trim()) ?? ""
  return before.trim() + visible(pieces[key])
}

export default function ({ parentElement, data: sent, setTriggerValue }) {
  const root = parentElement.querySelector(".sharpen"), data = sent?.[0]
  if (!root || !data) return
  const own = kept.get(parentElement) ?? { id: null }
  kept.set(parentElement, own)
  const find = (name) => root.querySelector(name)
  Object.assign(own, { root, data, find, send: setTriggerValue, t: data.t, query: data.query })
  if (own.id !== data.id) {
    unpack(own)
    write(own)
    cells(own)
  }
  const slider = find("input")
  slider.value = own.t
  slider.oninput = () => { own.t = Number(slider.value); changed(own) }
  slider.onchange = () => own.send("t", own.t)
  find(".text").onclick = (event) => { const at = event.target.dataset?.i; if (at !== undefined) look(own, Number(at), true) }
  find(".text").onkeydown = (event) => keys(own, event)
  find(".heads").onclick = (event) => { const cell = event.target.dataset?.cell; if (cell) own.send("head", cell) }
  find(".heads").onkeydown = (event) => step(own, event)
  own.resize?.disconnect()
  own.resize = new ResizeObserver(() => { measure(own); changed(own) })
  own.resize.observe(find("canvas"))
  measure(own)
  rows(own)
  changed(own)
  show(own, own.query)
  return () => { own.resize.disconnect(); cancelAnimationFrame(own.frame) }
}

// The scores do not depend on the temperature: they are made once.
function unpack(own) {
  const { data } = own, { heads, groups, size, length } = data.shape
  own.id = data.id
  own.keys = floats(data.keys)
  own.mine = floats(data.mine)
  const spread = floats(data.spread), count = data.places.length
  own.all = data.layers.flatMap((layer, at) => Array.from({ length: heads }, (_, head) => ({
    layer, head, cap: data.softcap[at],
    rows: data.places.map((query, place) => scored(own, spread, ((at * heads + head) * count + place) * size, at, head, query)),
  })))
}

function scored(own, queries, from, at, head, query) {
  const { heads, groups, size, length } = own.data.shape
  const group = Math.floor((head * groups) / heads), first = firstKey(query, own.data.window[at])
  return scores(queries, from, own.keys, (at * groups + group) * length * size, size, own.data.scaling[at], first, query)
}

// The row of the query in use, and in dense attention.
function rows(own) {
  const { data } = own, at = data.layers.indexOf(data.layer)
  own.first = firstKey(own.query, data.window[at])
  own.cap = data.softcap[at]
  own.row = scored(own, own.mine, own.query * data.shape.size, at, data.head, own.query)
  own.dense = softmax(own.row, 1, own.cap)
  own.spread = sharpness(own.row, 1, own.cap)
}

function look(own, query, tell) {
  own.query = query
  rows(own)
  changed(own)
  if (tell) own.send("query", query)
}

function changed(own) {
  own.left = own.all.length
  cancelAnimationFrame(own.frame)
  own.frame = requestAnimationFrame(() => frame(own, true))
}

function frame(own, anew) {
  const until = performance.now() + SLICE
  if (anew) row(own)
  own.next ??= 0
  while (own.left && performance.now() < until) {
    cell(own, own.next)
    own.next = (own.next + 1) % own.all.length
    own.left -= 1
  }
  if (own.left) own.frame = requestAnimationFrame(() => frame(own, false))
}

function row(own) {
  const { find, data } = own, now = sharpness(own.row, own.t, own.cap)
  own.weights = softmax(own.row, own.t, own.cap)
  find("output").textContent = own.t.toFixed(2)
  find("input").setAttribute("aria-valuetext", `temperature ${own.t.toFixed(2)}`)
  find(".now").textContent = spelled(now.support)
  find(".was").textContent = `tokens of equal weight, ${spelled(own.spread.support)} in dense attention. Largest weight ${percent(now.largest)}, ${percent(own.spread.largest)} dense.`
  Object.assign(own.root.dataset, { entropy: now.entropy, largest: now.largest, t: own.t })
  chart(own)
  best(own)
  paint(own)
}

// Sizes and colours are read when they change: to ask for them while dragging lays the page out again.
function measure(own) {
  const canvas = own.find("canvas"), scale = devicePixelRatio || 1, style = getComputedStyle(own.root)
  canvas.width = Math.max(1, Math.round(canvas.clientWidth * scale))
  canvas.height = Math.round(canvas.clientHeight * scale)
  own.ink = { accent: style.getPropertyValue("--accent"), text: style.color, scale }
}

// The row along the window: bars now, the line of dense attention.
function chart(own) {
  const canvas = own.find("canvas"), { width, height } = canvas, { accent, text, scale } = own.ink
  // A query sees nothing after itself, so that the chart ends with it.
  const pen = canvas.getContext("2d"), length = own.query + 1
  const high = (weights) => {
    const bars = new Float32Array(width)
    for (let n = 0; n < weights.length; n++) {
      const x = Math.floor(((own.first + n) / length) * width)
      if (weights[n] > bars[x]) bars[x] = weights[n]
    }
    return bars.map(Math.sqrt)
  }
  pen.clearRect(0, 0, width, height)
  const wide = Math.max(2 * scale, width / length)
  pen.fillStyle = accent
  high(own.weights).forEach((bar, x) => { if (bar) pen.fillRect(x, height * (1 - bar), wide, height * bar) })
  pen.fillStyle = text
  high(own.dense).forEach((bar, x) => { if (bar > 0.03) pen.fillRect(x, height * (1 - bar), wide, scale) })
}

function best(own) {
  const list = own.find(".best"), { pieces, offset } = own.data
  const top = topKeys(own.weights, MOST, own.first)
  while (list.children.length < MOST) {
    const line = document.createElement("button")
    line.append(...["piece", "back", "bar", "share"].map((name) => Object.assign(document.createElement("span"), { className: name })))
    list.append(line)
  }
  ;[...list.children].forEach((line, n) => {
    line.hidden = n >= top.length
    if (line.hidden) return
    const [key, weight] = top[n], [piece, back, bar, share] = line.children
    piece.textContent = told(pieces, key)
    back.textContent = key === own.query ? "itself" : `${(own.query - key).toLocaleString("en")} back`
    bar.style.setProperty("--now", `${100 * weight}%`)
    bar.style.setProperty("--was", `${100 * own.dense[key - own.first]}%`)
    share.textContent = percent(weight)
    line.title = `token ${(offset + key).toLocaleString("en")}; ${percent(own.dense[key - own.first])} in dense attention`
    line.onclick = () => show(own, key)
  })
}

function write(own) {
  const text = own.find(".text")
  own.spans = own.data.pieces.map((piece, i) => {
    const span = document.createElement("span")
    span.textContent = piece
    span.dataset.i = i
    return span
  })
  own.levels = new Int8Array(own.spans.length)
  text.replaceChildren(...own.spans)
}

// Only tokens whose step of colour changes are touched.
function paint(own) {
  const level = (weight) => { let step = 0; while (step < LEVELS.length && weight >= LEVELS[step]) step++; return step }
  own.spans.forEach((span, i) => {
    const weight = own.weights[i - own.first] ?? 0, query = i === own.query
    const step = (i > own.query ? -1 : level(weight)) + (query ? 10 : 0)
    if (step === own.levels[i] && span.className) return
    own.levels[i] = step
    span.className = `t w${Math.max(0, step % 10)}${i > own.query ? " later" : ""}${query ? " query" : ""}`
  })
}

function show(own, token) {
  const text = own.find(".text"), span = own.spans[token]
  if (span) text.scrollTop = span.offsetTop - text.clientHeight / 2
}

function keys(own, event) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key]
  if (step) {
    look(own, Math.min(own.spans.length - 1, Math.max(0, own.query + step)), false)
    show(own, own.query)
  } else if (event.key === "Enter") own.send("query", own.query)
  else return
  event.preventDefault()
}

function cells(own) {
  const { data } = own, map = own.find(".heads"), reached = map.contains(map.getRootNode().activeElement)
  own.cells = own.all.map(({ layer, head }) => {
    const cell = document.createElement("i")
    cell.dataset.cell = `${layer}.${head}`
    cell.style.gridArea = `${data.layers.length - data.layers.indexOf(layer)} / ${head + 1}`
    const chosen = layer === data.layer && head === data.head
    cell.classList.toggle("chosen", chosen)
    cell.setAttribute("role", "button")
    cell.tabIndex = chosen ? 0 : -1
    return cell
  })
  map.style.setProperty("--heads", data.shape.heads)
  map.replaceChildren(...own.cells)
  if (reached) map.querySelector(".chosen")?.focus()
}

// Arrows go from head to head, Enter chooses one.
function step(own, event) {
  const cell = event.target.dataset?.cell
  if (!cell) return
  if (event.key === "Enter") own.send("head", cell)
  const by = { ArrowUp: [1, 0], ArrowDown: [-1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key]
  if (!by) return
  event.preventDefault()
  const [layer, head] = cell.split(".").map(Number)
  own.cells.find((one) => one.dataset.cell === `${layer + by[0]}.${head + by[1]}`)?.focus()
}

// How sharp a head is: the mean over the queries that stand for all, strong where few tokens are read.
function cell(own, n) {
  const { rows: sampled, cap, layer, head } = own.all[n]
  let entropy = 0, support = 0
  for (const scores of sampled) {
    const sharp = sharpness(scores, own.t, cap)
    entropy += sharp.entropy / sampled.length
    support += sharp.support / sampled.length
  }
  const strong = 1 - entropy / own.data.widest
  own.cells[n].style.setProperty("--strong", `${Math.round(100 * Math.min(1, Math.max(0, strong)))}%`)
  own.cells[n].title = `head ${layer}.${head}: as if ${spelled(support)} tokens had equal weight`
  own.cells[n].dataset.support = support
  own.cells[n].dataset.entropy = entropy
}
