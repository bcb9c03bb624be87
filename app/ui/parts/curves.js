// What methods lose against the share that each keeps: a curve with its band for each, your limit as a dashed line, and
// the rows of the chosen share below, in rank groups. The dot on a curve is its slider: drag it, click a stop, or press
// arrow keys. Every stored step is here, so a move is drawn in the next frame; only the released one goes to Python.

const memory = new WeakMap()
const SVG = "http://www.w3.org/2000/svg"
const EDGE = { left: 58, right: 64, top: 22, bottom: 46 }
const TICKS = [-0.2, -0.1, -0.05, 0, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 100]

export default function ({ parentElement, data: sent, setTriggerValue }) {
  const data = sent?.[0]
  const root = parentElement.querySelector(".curves")
  if (!root || !data) return
  const own = memory.get(parentElement) ?? { held: null }
  memory.set(parentElement, own)
  Object.assign(own, { data, send: setTriggerValue })
  if (own.held === null) Object.assign(own, { lead: data.lead, at: data.at })
  draw(root, own)
  own.resize?.disconnect()
  own.resize = new ResizeObserver(() => draw(root, own))
  own.resize.observe(root)
  return () => own.resize.disconnect()
}

const step = (method, stop) => method.points.find((point) => point.stop === stop || method.fixed)

function node(name, about = {}, words = null) {
  const made = document.createElementNS(SVG, name)
  for (const [key, value] of Object.entries(about)) made.setAttribute(key, value)
  if (words !== null) made.textContent = words
  return made
}

// Shares stand on a scale of square roots: small ones need room. Losses are even up to the limit and then grow by
// factors, so that nothing lies beyond the edge.
function scales(own, width, height) {
  const { data } = own
  const bend = (change) => Math.asinh(change / data.limit)
  const changes = data.methods.flatMap((method) => method.points.flatMap((p) => [p.change, p.low ?? p.change, p.high ?? p.change]))
  const [best, worst] = [Math.min(0, ...changes), Math.max(data.limit, ...changes)].map(bend)
  const room = 0.05 * (worst - best)
  const from = Math.sqrt(0.8 * Math.min(...data.stops, ...data.methods.flatMap((method) => method.points.map((p) => p.share))))
  const wide = width - EDGE.left - EDGE.right, tall = height - EDGE.top - EDGE.bottom
  return {
    x: (share) => EDGE.left + (wide * (Math.sqrt(share) - from)) / (1 - from),
    y: (change) => EDGE.top + (tall * (bend(change) - best + room)) / (worst - best + 2 * room),
  }
}

function draw(root, own) {
  const svg = root.querySelector("svg")
  const width = Math.max(280, root.clientWidth), height = width < 520 ? 300 : 350
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`)
  svg.setAttribute("height", height)
  const focused = root.getRootNode().activeElement?.dataset?.method
  const to = scales(own, width, height)
  own.to = to
  svg.replaceChildren(...axes(own, to, width, height), ...own.data.methods.flatMap((method) => curve(own, method, to)))
  svg.append(...names(own, to, width, height), ...handles(root, own, to))
  if (focused) svg.querySelector(`[data-method="${focused}"]`)?.focus()
  svg.onpointerdown = (event) => hold(root, own, event)
  svg.onpointermove = (event) => (own.held === null ? hover(root, own, event) : drag(root, own, event))
  svg.onpointerup = svg.onpointercancel = () => release(own)
  svg.onpointerleave = () => { root.querySelector(".tip").hidden = true }
  rows(root, own)
}

function axes(own, to, width, height) {
  const { data } = own
  const bottom = height - EDGE.bottom, right = width - EDGE.right
  const drawn = []
  let last = -Infinity
  for (const tick of TICKS.filter((tick) => to.y(tick) >= EDGE.top - 2 && to.y(tick) <= bottom + 2)) {
    if (to.y(tick) - last < 22 && tick !== 0) continue
    last = to.y(tick)
    drawn.push(node("line", { class: tick === 0 ? "zero" : "grid", x1: EDGE.left, x2: right, y1: last, y2: last }))
    const words = tick === 0 ? "0" : `${tick > 0 ? "+" : ""}${percent(tick)}`
    drawn.push(node("text", { class: "tick", x: EDGE.left - 8, y: last + 4, "text-anchor": "end" }, words))
  }
  let at = -Infinity
  for (const stop of [...data.stops, 1]) {
    const near = to.x(stop) - at < 34
    if (!near) at = to.x(stop)
    if (stop === own.at) drawn.push(node("line", { class: "now", x1: to.x(stop), x2: to.x(stop), y1: EDGE.top, y2: bottom }))
    if (!near) drawn.push(node("text", { class: "tick", x: to.x(stop), y: bottom + 18, "text-anchor": "middle" }, percent(stop)))
  }
  const limit = to.y(data.limit)
  drawn.push(node("line", { class: "limit", x1: EDGE.left, x2: right, y1: limit, y2: limit }))
  drawn.push(node("text", { class: "limit", x: EDGE.left + 6, y: limit - 5 }, `your limit, +${percent(data.limit)}`))
  drawn.push(node("text", { class: "axis", x: right, y: height - 8, "text-anchor": "end" }, data.axis))
  drawn.push(node("text", { class: "axis", x: 4, y: 12 }, "perplexity against dense, better up"))
  drawn.push(node("circle", { class: "dense", cx: to.x(1), cy: to.y(0), r: 5 }))
  drawn.push(node("text", { class: "name", x: to.x(1) + 10, y: to.y(0) + 4 }, "dense"))
  return drawn
}

function curve(own, method, to) {
  const colour = `--ink: ${method.colour}`
  if (method.fixed) return []
  const points = [...method.points].sort((a, b) => a.share - b.share)
  const path = (list, value) => list.map((p) => `${to.x(p.share)},${to.y(value(p))}`).join(" ")
  const sure = points.filter((point) => point.low !== null)
  const drawn = []
  if (sure.length > 1) {
    const band = `${path(sure, (p) => p.low)} ${path([...sure].reverse(), (p) => p.high)}`
    drawn.push(node("polygon", { class: method.name === own.lead ? "band lead" : "band", style: colour, points: band }))
  }
  drawn.push(node("polyline", { class: `line ${method.null ? "null" : ""}`, style: colour, points: path(points, (p) => p.change) }))
  for (const point of points) {
    drawn.push(node("circle", { class: "stop", style: colour, cx: to.x(point.share), cy: to.y(point.change), r: 3.5 }))
  }
  for (const stop of method.missing) {
    const after = points.findIndex((point) => point.share > stop)
    if (after < 1) continue
    const [a, b] = [points[after - 1], points[after]]
    const y = to.y(a.change) + ((to.x(stop) - to.x(a.share)) / (to.x(b.share) - to.x(a.share))) * (to.y(b.change) - to.y(a.change))
    const waiting = node("circle", { class: "waiting", style: colour, cx: to.x(stop), cy: y, r: 4 })
    waiting.append(node("title", {}, `${method.title} at ${percent(stop)}: ${own.data.waits}`))
    drawn.push(waiting)
  }
  return drawn
}

// Each name stands at the left end of its curve, pushed down where two would cover each other.
function names(own, to, width, height) {
  const placed = own.data.methods.filter((method) => method.points.length).map((method) => {
    const first = method.points.reduce((a, b) => (b.share < a.share ? b : a))
    return { method, x: Math.min(to.x(first.share) + 8, width - 130), y: to.y(first.change) - 8 }
  })
  placed.sort((a, b) => a.y - b.y)
  placed.forEach((one, at) => { if (at && one.y - placed[at - 1].y < 15) one.y = placed[at - 1].y + 15 })
  const over = Math.max(0, (placed.at(-1)?.y ?? 0) - (height - EDGE.bottom - 4))
  return placed.map(({ method, x, y }) => {
    const words = method.null ? `${method.title} (no search)` : method.title
    return node("text", { class: method.name === own.lead ? "name lead" : "name", style: `--ink: ${method.colour}`, x, y: y - over }, words)
  })
}

function handles(root, own, to) {
  return own.data.methods.flatMap((method) => {
    const point = step(method, own.at)
    if (!point) return []
    const about = {
      class: method.name === own.lead ? "handle lead" : "handle", style: `--ink: ${method.colour}`, "data-method": method.name,
      tabindex: 0, role: "slider", "aria-label": `${method.title}: ${own.data.axis}`, "aria-valuemin": 0, "aria-valuemax": 100,
      "aria-valuenow": Math.round(100 * point.share), "aria-valuetext": `${percent(point.share)}, perplexity ${point.words}`,
    }
    const handle = node("g", about)
    const [x, y] = [to.x(point.share), to.y(point.change)]
    if (point.low !== null) handle.append(node("line", { class: "bar", x1: x, x2: x, y1: to.y(point.low), y2: to.y(point.high) }))
    const mark = method.fixed ? node("rect", { x: x - 6, y: y - 6, width: 12, height: 12, transform: `rotate(45 ${x} ${y})` })
      : node("circle", { cx: x, cy: y, r: method.name === own.lead ? 9 : 6 })
    handle.append(mark)
    handle.onkeydown = (event) => key(root, own, method, event)
    handle.onkeyup = (event) => { if (event.key.startsWith("Arrow") || ["Home", "End"].includes(event.key)) release(own, true) }
    handle.onfocus = () => tell(root, own, method, point)
    handle.onblur = () => { root.querySelector(".tip").hidden = true }
    return [handle]
  })
}

const stops = (method) => method.points.map((point) => point.stop).filter((stop) => stop !== null).sort((a, b) => a - b)

function key(root, own, method, event) {
  const there = stops(method), at = there.indexOf(own.at)
  const wanted = { ArrowLeft: at - 1, ArrowDown: at - 1, ArrowRight: at + 1, ArrowUp: at + 1, Home: 0, End: there.length - 1 }
  if (!(event.key in wanted) || method.fixed) return
  event.preventDefault()
  move(root, own, method.name, there[Math.min(Math.max(wanted[event.key], 0), there.length - 1)])
}

function move(root, own, lead, at) {
  if (at === undefined || (own.lead === lead && own.at === at)) return
  Object.assign(own, { lead, at, held: own.held ?? lead })
  draw(root, own)
}

// The point of a method under the pointer, or the nearest one.
function nearest(root, own, event, only = null) {
  const box = root.querySelector("svg").getBoundingClientRect()
  const [x, y] = [event.clientX - box.left, event.clientY - box.top]
  let best = null
  for (const method of own.data.methods) {
    if (only !== null && (method.name !== only || method.fixed)) continue
    for (const point of method.points) {
      const far = Math.hypot(own.to.x(point.share) - x, only === null ? own.to.y(point.change) - y : 0)
      if (best === null || far < best.far) best = { far, method, point }
    }
  }
  return best
}

function hold(root, own, event) {
  const found = nearest(root, own, event)
  if (!found || found.far > 60) return
  event.preventDefault()
  own.held = found.method.name
  root.querySelector("svg").setPointerCapture(event.pointerId)
  move(root, own, found.method.name, found.point.stop ?? own.at)
}

function drag(root, own, event) {
  const found = nearest(root, own, event, own.held)
  if (found) move(root, own, own.held, found.point.stop)
}

function release(own) {
  if (own.held === null) return
  own.held = null
  if (own.lead !== own.data.lead || own.at !== own.data.at) own.send("moved", [own.lead, own.at])
}

function hover(root, own, event) {
  const found = nearest(root, own, event)
  if (found && found.far < 24) tell(root, own, found.method, found.point)
  else root.querySelector(".tip").hidden = true
}

function tell(root, own, method, point) {
  const tip = root.querySelector(".tip")
  tip.textContent = `${method.title}${point.settings ? `, ${point.settings}` : ""}: ${percent(point.share)}, perplexity ${point.words}`
  tip.hidden = false
  const wide = root.clientWidth
  tip.style.left = `${Math.min(Math.max(own.to.x(point.share) - 90, 0), Math.max(0, wide - 220))}px`
  tip.style.top = `${own.to.y(point.change) + 16}px`
}

function rows(root, own) {
  const { data } = own
  const listed = data.methods.map((method) => ({ method, point: step(method, own.at) }))
  listed.sort((a, b) => (a.point?.change ?? Infinity) - (b.point?.change ?? Infinity))
  const ranks = data.ranks[own.at === null ? "set" : String(own.at)] ?? {}
  const body = listed.map(({ method, point }) => row(root, own, method, point, ranks, listed))
  const head = document.createElement("tr")
  const share = own.at === null ? "as set" : `at ${percent(own.at)}`
  for (const words of ["rank", `method ${share}`, "perplexity", data.worst, "speed here", data.held]) {
    const cell = document.createElement("th")
    cell.scope = "col"
    cell.textContent = words
    head.append(cell)
  }
  root.querySelector("thead").replaceChildren(head)
  root.querySelector("tbody").replaceChildren(...body)
}

function row(root, own, method, point, ranks, listed) {
  const made = document.createElement("tr")
  const rank = ranks[method.name]
  const alike = rank !== undefined && listed.filter((one) => ranks[one.method.name] === rank).length > 1
  const button = document.createElement("button")
  button.type = "button"
  button.textContent = method.title
  button.style.setProperty("--ink", method.colour)
  button.setAttribute("aria-pressed", method.name === own.lead)
  button.onclick = () => { move(root, own, method.name, own.at); release(own) }
  const named = document.createElement("td")
  named.append(button)
  button.title = point?.settings ?? ""
  const note = [method.null ? "no search" : "", alike ? "not told apart" : ""].filter(Boolean).join(" · ")
  if (note) {
    const small = document.createElement("small")
    small.textContent = ` ${note}`
    named.append(small)
  }
  const cells = point ? [point.words, point.worst, point.speed, point.held]
    : [method.missing.includes(own.at) ? own.data.waits : method.least, "", "", ""]
  made.append(Object.assign(document.createElement("td"), { textContent: rank ?? "–" }), named)
  for (const words of cells) made.append(Object.assign(document.createElement("td"), { textContent: words, className: "number" }))
  made.classList.toggle("over", !!point && point.change > own.data.limit)
  return made
}
