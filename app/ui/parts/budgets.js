// How many tokens each head may read, as a map that follows two sliders: the share of the pairs that is read, and the
// cap. The keys are shared out here as analysis/metrics/budgets.py does it, to the last key.

const LEAST = 0.02 // share of the pairs
const STEPS = 200
const MOST = 2 ** 30
const FINEST = 1000 // bits after the point of a rank
const EDGE = 30
const LOSS = { top: 14, height: 104, edge: 56 }
const WRITTEN = 26 // pixels of a cell that has its number written in it
// Levels of a cell from which its letters change to hold 4.5:1, on a dark and on a light page.
const CHANGES = { mid: 0.65, high: 0.86 }

// --- the arithmetic ---------------------------------------------------------------------------------------------------

// Ranks as whole numbers of one common unit: their remainders are then exact, as the fractions of Python are.
export function weights(ranks) {
  if (!ranks.some((rank) => rank > 0)) return ranks.map(() => 1n)
  const powers = ranks.map((rank) => {
    let power = 0
    while (power < FINEST && !Number.isInteger(rank * 2 ** power)) power++
    return power
  })
  const common = Math.max(...powers)
  return ranks.map((rank, place) => BigInt(Math.round(rank * 2 ** powers[place])) << BigInt(common - powers[place]))
}

// `total` keys over heads of these weights: `floor` each, the rest by largest remainder, ties to the first.
export function allocate(parts, total, floor) {
  const spare = BigInt(total - floor * parts.length), sum = parts.reduce((a, b) => a + b, 0n)
  const keys = parts.map((part) => floor + Number((spare * part) / sum))
  const left = total - keys.reduce((a, b) => a + b, 0)
  const remainders = parts.map((part) => (spare * part) % sum)
  const order = parts.map((_, cell) => cell)
  order.sort((a, b) => (remainders[a] === remainders[b] ? a - b : remainders[a] > remainders[b] ? -1 : 1))
  for (const cell of order.slice(0, left)) keys[cell] += 1
  return keys
}

// Pairs of a query and a key that heads with so many keys read in a text of `length` tokens.
function pairs(budgets, length) {
  return budgets.reduce((sum, budget) => {
    const keys = Math.min(budget, length)
    return sum + (keys * (keys + 1)) / 2 + keys * (length - keys)
  }, 0)
}

// The fewest keys in all that read at least `share` of the causal pairs.
export function forReads(parts, share, length, floor) {
  const wanted = share * parts.length * ((length * (length + 1)) / 2)
  const enough = (total) => pairs(allocate(parts, total, floor), length) >= wanted
  let low = floor * parts.length, high = Math.max(2, floor) * parts.length
  while (!enough(high) && high < MOST / 2) [low, high] = [high, 2 * high]
  while (low < high) {
    const middle = Math.floor((low + high) / 2)
    if (enough(middle)) high = middle
    else low = middle + 1
  }
  return low
}

// Budgets after changes by hand; null where these take more than there is.
export function edited(start, parts, data) {
  const budgets = [...start], fixed = start.map(() => false), total = start.reduce((a, b) => a + b, 0)
  for (const edit of data.edits) {
    budgets.forEach((keys, cell) => {
      const layer = Math.floor(cell / data.heads), head = cell % data.heads
      if ((edit.layer ?? layer) !== layer || (edit.head ?? head) !== head) return
      if (edit.cells && !edit.cells.includes(cell)) return
      fixed[cell] = true
      if (edit.set) budgets[cell] = edit.set
      if (edit.scale !== undefined) budgets[cell] = Math.min(Math.max(Math.floor(keys * edit.scale + 0.5), 1), MOST)
    })
    const free = fixed.flatMap((by, cell) => (by ? [] : [cell]))
    if (!data.keep_total || !free.length) continue
    const left = total - budgets.reduce((sum, keys, cell) => sum + (fixed[cell] ? keys : 0), 0)
    if (left < data.floor * free.length) return null
    const shares = allocate(weights(free.map((cell) => data.ranks[cell])), left, data.floor)
    free.forEach((cell, place) => { budgets[cell] = shares[place] })
  }
  return budgets
}

// What budgets under a cap read: of the causal pairs, and of those of the key-value heads at least and at most.
export function reads(budgets, cap, data) {
  const { length, heads, kv_heads: groups } = data, capped = budgets.map((keys) => Math.min(keys, cap, length))
  const causal = (length * (length + 1)) / 2, shared = heads / groups, least = [], most = []
  for (let first = 0; first < capped.length; first += shared) {
    const group = capped.slice(first, first + shared)
    least.push(Math.max(...group))
    most.push(group.reduce((a, b) => a + b, 0))
  }
  return {
    reads_causal: pairs(capped, length) / (capped.length * causal),
    reads_kv_least: pairs(least, length) / (least.length * causal),
    reads_kv_most: pairs(most, length) / (most.length * causal),
  }
}

// The changes of perplexity at a share, on straight lines between what was measured.
export function lossAt(rows, share) {
  const right = rows.findIndex((row) => row.share >= share)
  if (right < 0) return null
  if (rows[right].share === share || right === 0) return rows[right].share === share ? { ...rows[right], exact: true } : null
  const [a, b] = [rows[right - 1], rows[right]], part = placed(share, a.share, b.share)
  const between = (name) => a[name] * (1 - part) + b[name] * part
  return { difference: between("difference"), worst: between("worst"), exact: false }
}

// --- the picture ------------------------------------------------------------------------------------------------------

const memory = new WeakMap()

export default function (component) {
  const data = component.data?.[0], root = component.parentElement.querySelector(".budgets")
  if (!data || !root) return
  const own = memory.get(component.parentElement) ?? {}
  memory.set(component.parentElement, own)
  if (own.id !== data.id) Object.assign(own, { id: data.id, share: data.share, cap: data.cap, moved: false })
  Object.assign(own, { data, parts: weights(data.ranks), cells: data.cells, send: component.setTriggerValue })
  own.calibrated = reads(data.stored, data.stored_cap, data).reads_causal
  own.draw = eachFrame(() => draw(root, own))
  sliders(root, own)
  own.resize?.disconnect()
  own.resize = new ResizeObserver(() => {
    own.wide = Math.max(240, root.clientWidth)
    lossAxes(root, own)
    map(root, own)
    draw(root, own)
  })
  own.resize.observe(root)
  return () => own.resize.disconnect()
}

function sliders(root, own) {
  const { data } = own, keep = root.querySelector(".keep"), cap = root.querySelector(".cap")
  const stops = data.measured.map((row) => row.share)
  keep.max = cap.max = STEPS
  keep.value = STEPS * placed(Math.max(data.share ?? data.reads, LEAST), LEAST, 1)
  cap.value = STEPS * placed(Math.min(data.cap, data.length), 1, data.length)
  keep.oninput = () => {
    const share = valued(keep.value / STEPS, LEAST, 1), near = stops.find((stop) => Math.abs(Math.log(stop / share)) < 0.03)
    own.share = near ?? Math.round(share * 1000) / 1000
    if (!data.cap_chosen) own.cap = MOST
    own.moved = true
    own.draw()
  }
  cap.oninput = () => {
    own.cap = Number(cap.value) === STEPS ? MOST : Math.round(valued(cap.value / STEPS, 1, data.length))
    own.moved = true
    own.draw()
  }
  keep.onchange = () => own.send("share", own.share)
  cap.onchange = () => own.send("cap", own.cap === MOST ? 0 : own.cap)
}

function map(root, own) {
  const { data } = own, box = root.querySelector(".map"), layers = data.ranks.length / data.heads
  const high = Math.min(46, Math.max(9, Math.floor(322 / layers))), wide = (own.wide - EDGE) / data.heads
  const strip = Math.min(16, Math.max(3, Math.floor(160 / (data.rows.length - layers)))), tops = new Map()
  let total = 0
  for (const [layer, other] of data.rows) {
    tops.set(layer, total)
    total += other ? strip : high
  }
  box.setAttribute("viewBox", `0 0 ${own.wide} ${total + 26}`)
  box.setAttribute("aria-label", `Tokens that each head may read, ${layers} layers of ${data.heads} heads; arrow keys go from head to head`)
  box.replaceChildren()
  for (const [layer, other] of data.rows) if (other) otherLayer(box, layer, other, { y: tops.get(layer), strip, wide: own.wide })
  const every = Math.ceil(data.heads / 16), rows = Math.ceil(layers / 16)
  own.drawn = data.ranks.map((_, cell) => {
    const layer = Math.floor(cell / data.heads), head = cell % data.heads
    const x = EDGE + head * wide, y = tops.get(data.layers[layer])
    if (head === 0 && layer % rows === 0) node("text", { x: EDGE - 8, y: y + high / 2, class: "axis end" }, box, data.layers[layer])
    if (layer === 0 && head % every === 0) node("text", { x: x + wide / 2, y: total + 14, class: "axis" }, box, head)
    const group = node("g", { "data-cell": cell, class: "cell" }, box)
    const area = node("rect", { x: x + 1, y: y + 1, width: wide - 2, height: high - 2, rx: 3 }, group)
    const words = wide >= WRITTEN && high >= 18 ? node("text", { x: x + wide / 2, y: y + high / 2 - 2 }, group) : null
    const need = node("rect", { x: x + 4, y: y + high - 7, height: 3, rx: 1.5, class: "need" }, group)
    const title = node("title", {}, group)
    return { group, area, words, need, title, width: wide - 8 }
  })
  box.onclick = (event) => {
    const cell = event.target.closest("[data-cell]")?.dataset.cell
    if (cell !== undefined) choose(own, Number(cell), event.shiftKey)
  }
  box.onkeydown = (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: data.heads, ArrowDown: -data.heads }[event.key]
    const to = own.cells.at(-1) + step
    if (step === undefined || !data.ranks[to]) return
    event.preventDefault()
    choose(own, to, event.shiftKey)
  }
}

function otherLayer(box, layer, kind, { y, strip, wide }) {
  const group = node("g", { class: "other" }, box)
  node("rect", { x: EDGE + 1, y: y + 1, width: wide - EDGE - 2, height: strip - 2, rx: 2 }, group)
  node("title", {}, group, `Layer ${layer}: ${kind}, without heads`)
  if (strip < 13) return
  node("text", { x: EDGE - 8, y: y + strip / 2, class: "axis end" }, group, layer)
  node("text", { x: EDGE + 6, y: y + strip / 2, class: "axis start" }, group, kind)
}

function choose(own, cell, more) {
  const others = own.cells.filter((one) => one !== cell)
  own.cells = more ? [...others, cell] : [cell]
  own.draw()
  own.send("cells", own.cells.join("."))
}

function lossAxes(root, own) {
  const { data } = own, box = root.querySelector(".loss"), rows = data.measured
  box.toggleAttribute("hidden", !rows.length)
  if (!rows.length) return
  const top = Math.max(0.01, ...rows.map((row) => Math.max(row.worst, row.high ?? 0)))
  const low = Math.min(0, ...rows.map((row) => row.difference))
  own.x = (share) => LOSS.edge + (own.wide - 2 * LOSS.edge) * placed(share, LEAST, 1)
  own.y = (value) => LOSS.top + LOSS.height * (1 - (value - low) / (top - low))
  const bottom = LOSS.top + LOSS.height
  box.setAttribute("viewBox", `0 0 ${own.wide} ${bottom + 22}`)
  box.classList.toggle("example", Boolean(data.example))
  box.replaceChildren()
  for (const tick of [0, top / 2, top]) {
    node("line", { x1: LOSS.edge, x2: own.wide - LOSS.edge, y1: own.y(tick), y2: own.y(tick), class: "grid" }, box)
    node("text", { x: LOSS.edge - 6, y: own.y(tick), class: "axis end" }, box, `${tick > 0 ? "+" : ""}${percent(tick)}`)
  }
  for (const tick of [0.02, 0.05, 0.1, 0.25, 0.5, 1]) {
    node("text", { x: own.x(tick), y: bottom + 14, class: "axis" }, box, percent(tick))
  }
  const calibrated = own.x(Math.max(own.calibrated, LEAST))
  node("line", { x1: calibrated, x2: calibrated, y1: LOSS.top, y2: bottom, class: "calibrated" }, box)
  node("text", { x: calibrated + 4, y: LOSS.top + 6, class: "axis start" }, box, "as calibrated")
  const ends = (name) => rows.map((row) => [own.x(row.share), own.y(row[name] ?? row.difference)])
  node("path", { d: `${path(ends("high"))}L${path(ends("low").reverse()).slice(1)}Z`, class: "band" }, box)
  for (const name of ["worst", "difference"]) {
    const points = rows.map((row) => [own.x(row.share), own.y(row[name])])
    node("path", { d: path(points), class: `line ${name}` }, box)
    for (const [x, y] of points) node("circle", { cx: x, cy: y, r: 3, class: `dot ${name}` }, box)
  }
  const named = rows[Math.floor(rows.length / 3)], x = own.x(named.share) + 4
  node("text", { x, y: own.y(named.worst) - 10, class: "name start worst" }, box, "worst stretch")
  const words = data.example ? `mean, on ${data.example}` : "mean"
  node("text", { x, y: own.y(named.difference) - 10, class: "name start difference" }, box, words)
  own.at = node("line", { y1: LOSS.top, y2: bottom, class: "at" }, box)
  own.mark = node("circle", { r: 6, class: "mark" }, box)
}

function draw(root, own) {
  const { data } = own
  const total = own.share === null ? 0 : forReads(own.parts, own.share, data.length, data.floor)
  const made = own.moved && own.share !== null ? edited(allocate(own.parts, total, data.floor), own.parts, data) : data.budgets
  root.querySelector(".trouble").hidden = made !== null
  const budgets = made ?? data.budgets, keys = budgets.map((budget) => Math.min(budget, own.cap, data.length))
  const read = reads(budgets, own.cap, data)
  colour(own, keys)
  numbers(root, own, keys, read, own.share ?? read.reads_causal)
}

function colour(own, keys) {
  const { data } = own, high = Math.log(data.length), chosen = new Set(own.cells)
  own.drawn.forEach((cell, place) => {
    const level = 0.06 + 0.94 * (Math.log(Math.max(keys[place], 1)) / high)
    const named = `${Math.floor(place / data.heads)}.${place % data.heads}`
    const hand = data.fixed[place]
    cell.group.style.setProperty("--level", `${(100 * level).toFixed(1)}%`)
    for (const [name, from] of Object.entries(CHANGES)) cell.group.classList.toggle(name, level > from)
    cell.group.classList.toggle("chosen", chosen.has(place))
    cell.group.classList.toggle("hand", hand)
    if (cell.words) cell.words.textContent = whole(keys[place])
    cell.need.setAttribute("width", (cell.width * Math.min(1, keys[place] / Math.max(data.ranks[place], 1e-9))).toFixed(1))
    cell.title.textContent = `Head ${named}: may read ${whole(keys[place])} tokens${hand ? " (by hand)" : ""}, needs ${whole(data.ranks[place])}`
  })
}

function numbers(root, own, keys, read, share) {
  const { data } = own, put = (name, words, hint) => {
    const place = root.querySelector(`.${name}`)
    place.textContent = words
    if (hint) place.parentElement.title = hint
  }
  const plain = own.share !== null && own.cap >= data.length && !data.edits.length
  const measured = own.moved || data.now === null ? plain && lossAt(data.measured, own.share) : data.now
  put("pairs", percent(read.reads_causal, 1), `Heads that share keys read ${percent(read.reads_kv_least, 1)} to ${percent(read.reads_kv_most, 1)} together.`)
  put("each", whole(keys.reduce((a, b) => a + b, 0) / keys.length), `${whole(keys.reduce((a, b) => a + b, 0))} tokens in all heads`)
  put("lost", measured ? `${measured.exact ? "" : "about "}${change(measured.difference)}` : "not measured")
  put("worst", measured ? `${change(measured.worst)} at worst` : "")
  root.querySelector(".keep-now").textContent = percent(share, 1)
  root.querySelector(".cap-now").textContent = own.cap >= data.length ? "none" : whole(own.cap)
  root.querySelector(".keep").setAttribute("aria-valuetext", `${percent(share, 1)} of the pairs`)
  root.querySelector(".cap").setAttribute("aria-valuetext", own.cap >= data.length ? "no cap" : `${whole(own.cap)} tokens`)
  if (!data.measured.length) return
  const x = own.x(Math.max(share, LEAST))
  own.at.setAttribute("x1", x)
  own.at.setAttribute("x2", x)
  own.mark.toggleAttribute("hidden", !measured)
  if (!measured) return
  own.mark.setAttribute("cx", x)
  own.mark.setAttribute("cy", own.y(measured.difference))
  own.mark.classList.toggle("guess", !measured.exact)
}
