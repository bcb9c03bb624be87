// Recall of every router against the buckets that a query visits, and how many tokens lie in them, at a slider. The
// stored curves are read on straight lines between their budgets, as analysis/studies/routing/rows.py does it.

const PLOT = { top: 12, height: 336, left: 48, right: 12, bottom: 40 }
const STEPS = 400
const DASHES = { solid: "", dash: "8 4", dot: "2 4", dashdot: "8 4 2 4" }
const QUARTERS = 16 // buckets up to which the slider has quarters

// A curve at any number of buckets; null where nothing is known.
export function at(points, values, visited) {
  const found = points.findIndex((point) => point >= visited)
  const right = Math.min(Math.max(found < 0 ? points.length : found, 1), points.length - 1)
  const [low, high] = [points[right - 1], points[right]]
  const part = Math.min(Math.max((visited - low) / (high - low), 0), 1)
  const [a, b] = [values[right - 1], values[right]]
  return a === null || b === null ? null : a * (1 - part) + b * part
}

const memory = new WeakMap()

export default function (component) {
  const data = component.data?.[0], root = component.parentElement.querySelector(".routing")
  if (!data || !root) return
  const own = memory.get(component.parentElement) ?? {}
  memory.set(component.parentElement, own)
  const kinds = data.routers.map((router) => router.kind).join()
  if (own.kinds !== kinds) Object.assign(own, { kinds, all: false })
  if (own.id !== data.id) Object.assign(own, { id: data.id, visited: data.visited })
  Object.assign(own, { data, send: component.setTriggerValue })
  own.draw = eachFrame(() => draw(root, own))
  slider(root, own)
  list(root, own)
  own.resize?.disconnect()
  own.resize = new ResizeObserver(() => lay(root, own))
  own.resize.observe(root)
  return () => own.resize.disconnect()
}

function lay(root, own) {
  axes(root, own)
  draw(root, own)
}

function slider(root, own) {
  const { data } = own, visits = root.querySelector(".visits")
  visits.max = STEPS
  visits.value = STEPS * placed(data.visited, 1, data.buckets)
  visits.oninput = () => {
    const exact = valued(visits.value / STEPS, 1, data.buckets)
    own.visited = exact < QUARTERS ? Math.round(4 * exact) / 4 : Math.round(exact)
    own.draw()
  }
  visits.onchange = () => own.send("visited", own.visited)
}

function list(root, own) {
  const { data } = own, more = root.querySelector("button.more"), rest = data.routers.length - data.shown.length
  own.rows = new Map(data.routers.map((router) => {
    const row = document.createElement("li")
    row.title = router.about
    row.style.setProperty("--line", router.colour)
    row.classList.add(router.dash)
    const [, name, found, read] = ["swatch", "name", "found", "read"].map((part) => {
      const cell = document.createElement("span")
      cell.className = part
      row.append(cell)
      return cell
    })
    name.textContent = router.title
    return [router.kind, { row, found, read }]
  }))
  root.querySelector(".list").replaceChildren(...[...own.rows.values()].map(({ row }) => row))
  more.hidden = rest < 1
  more.textContent = own.all ? "Fewer routers" : `${rest} more routers`
  more.onclick = () => {
    own.all = !own.all
    list(root, own)
    lay(root, own)
  }
}

function axes(root, own) {
  const { data } = own, box = root.querySelector(".chart"), bottom = PLOT.top + PLOT.height
  own.wide = Math.max(240, box.clientWidth)
  own.x = (visited) => PLOT.left + (own.wide - PLOT.left - PLOT.right) * placed(visited, 1, data.buckets)
  own.y = (share) => bottom - PLOT.height * share
  box.setAttribute("viewBox", `0 0 ${own.wide} ${bottom + PLOT.bottom}`)
  box.replaceChildren()
  for (const tick of [0, 0.25, 0.5, 0.75, 1]) {
    node("line", { x1: PLOT.left, x2: own.wide - PLOT.right, y1: own.y(tick), y2: own.y(tick), class: "grid" }, box)
    node("text", { x: PLOT.left - 8, y: own.y(tick), class: "axis end" }, box, percent(tick, 1))
  }
  for (let visited = 1; visited <= data.buckets; visited *= 2) {
    const words = visited === data.buckets ? "all" : percent(visited / data.buckets, 1)
    node("text", { x: own.x(visited), y: bottom + 14, class: visited === data.buckets ? "axis end" : "axis" }, box, words)
  }
  node("text", { x: own.x(1), y: bottom + 32, class: "axis start" }, box, "share of the buckets visited")
  own.at = node("line", { y1: PLOT.top, y2: bottom, class: "at" }, box)
  own.marks = new Map()
  own.drawn = data.routers.filter(({ kind }) => own.all || data.shown.includes(kind))
  for (const router of own.drawn) curve(own, box, router)
}

function curve(own, box, router) {
  const line = own.data.lines[router.kind], group = node("g", { style: `--line: ${router.colour}` }, box)
  const points = line.l.map((visited, place) => {
    const found = line.recall[place]
    return [own.x(visited), found === null ? null : own.y(found)]
  })
  node("path", { d: path(points), class: "line", "stroke-dasharray": DASHES[router.dash] }, group)
  for (const [visited, low, high] of router.intervals) {
    node("line", { x1: own.x(visited), x2: own.x(visited), y1: own.y(low), y2: own.y(high), class: "interval" }, group)
  }
  const found = node("circle", { r: 5, class: "found" }, group)
  const read = node("rect", { width: 8, height: 8, class: "read" }, group)
  own.marks.set(router.kind, { found, read })
}

function draw(root, own) {
  const { data, visited } = own, x = own.x(visited)
  setPlace(own.at, { x1: x, x2: x })
  for (const [kind, { row }] of own.rows) row.hidden = !own.marks.has(kind)
  const found = own.drawn.map(({ kind }) => {
    const line = data.lines[kind]
    return { kind, recall: at(line.l, line.recall, visited), read: at(line.l, line.selectivity, visited) }
  })
  found.sort((a, b) => (b.recall ?? -1) - (a.recall ?? -1))
  for (const [order, { kind, recall, read }] of found.entries()) {
    const row = own.rows.get(kind), marks = own.marks.get(kind)
    row.found.textContent = recall === null ? "–" : percent(recall, 1)
    row.read.textContent = read === null ? "–" : percent(read, 1)
    row.row.style.order = order
    marks.found.toggleAttribute("hidden", recall === null)
    marks.read.toggleAttribute("hidden", read === null)
    if (recall !== null) setPlace(marks.found, { cx: x, cy: own.y(recall) })
    if (read !== null) setPlace(marks.read, { transform: `translate(${x} ${own.y(read)}) rotate(45) translate(-4 -4)` })
  }
  const words = `${Number(visited.toFixed(2))} of ${whole(data.buckets)} buckets`
  root.querySelector(".now").textContent = `${words}, ${percent(visited / data.buckets, 1)}`
  root.querySelector(".visits").setAttribute("aria-valuetext", words)
}

function setPlace(mark, attributes) {
  for (const [name, value] of Object.entries(attributes)) mark.setAttribute(name, value)
}
