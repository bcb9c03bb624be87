// The map of layers and heads by one of several measures: chips say who is first by each, arrows move over the cells,
// Enter or a click chooses a head. What a cell says stands under the map.

const memory = new WeakMap()

export default function ({ parentElement, data: sent, setTriggerValue }) {
  const root = parentElement.querySelector(".heads"), data = sent?.[0]
  if (!root || !data) return
  const own = memory.get(parentElement) ?? {}
  memory.set(parentElement, own)
  Object.assign(own, { root, data, send: setTriggerValue })
  chips(own)
  cells(own)
  paint(own)
  say(own, data.chosen)
}

const named = ([layer, head]) => `${layer}.${head}`

function chips(own) {
  const { root, data } = own, line = root.querySelector(".chips")
  line.replaceChildren(...data.measures.map(({ name, chip, best }) => {
    const button = document.createElement("button"), answer = document.createElement("b")
    answer.textContent = answer.dataset.head = best
    button.append(`${chip}: `, answer)
    button.setAttribute("aria-pressed", name === data.measure)
    button.onclick = () => {
      data.measure = name
      chips(own)
      paint(own)
      own.send("measure", name)
    }
    return button
  }))
}

function cells(own) {
  const { root, data } = own, map = root.querySelector(".map")
  const { rows, heads } = data
  const id = JSON.stringify([rows, heads])
  if (own.id !== id) {
    own.id = id
    own.cells = new Map()
    map.style.setProperty("--heads", heads)
    map.style.setProperty("--rows", rows.filter(([, other]) => !other).length)
    map.replaceChildren()
    for (const [layer, other] of rows) {
      const row = document.createElement("div")
      row.setAttribute("role", "row")
      const label = document.createElement("span")
      label.textContent = layer
      label.setAttribute("role", "rowheader")
      row.append(label)
      if (other) row.append(kind(other, heads))
      for (let head = 0; !other && head < heads; head++) {
        const cell = document.createElement("button")
        cell.setAttribute("role", "gridcell")
        Object.assign(cell.dataset, { layer, head })
        own.cells.set(named([layer, head]), cell)
        row.append(cell)
      }
      map.append(row)
    }
  }
  const place = (target) => target.dataset?.layer === undefined ? null : [Number(target.dataset.layer), Number(target.dataset.head)]
  map.onclick = (event) => { const at = place(event.target.closest("button") ?? {}); if (at) choose(own, at) }
  map.onpointerover = (event) => { const at = place(event.target); if (at) say(own, at) }
  map.onpointerleave = () => say(own, data.chosen)
  map.onkeydown = (event) => move(own, event, place(event.target))
  own.cells.forEach((cell, name) => {
    cell.textContent = data.letters[name] ?? ""
    cell.tabIndex = name === named(data.chosen) ? 0 : -1
    cell.setAttribute("aria-selected", name === named(data.chosen))
    cell.classList.toggle("pinned", name === data.pinned)
  })
}

// A layer without heads of softmax attention, as what it is.
function kind(other, heads) {
  const cell = document.createElement("span")
  cell.setAttribute("role", "gridcell")
  cell.setAttribute("aria-colspan", heads)
  cell.className = "other"
  cell.textContent = other
  return cell
}

function choose(own, at) {
  own.data.chosen = at
  cells(own)
  say(own, at)
  own.send("head", named(at))
}

function move(own, event, at) {
  const step = { ArrowUp: [1, 0], ArrowDown: [-1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key]
  if (!at || !step) return
  event.preventDefault()
  const next = [...at]
  let cell
  // over the layers that have no heads
  for (let steps = own.data.rows.length + own.data.heads; steps > 0 && !cell; steps--) {
    next[0] += step[0]
    next[1] += step[1]
    cell = own.cells.get(named(next))
  }
  if (!cell) return
  cell.focus()
  say(own, next)
}

function paint(own) {
  const { data } = own, measure = data.measures.find(({ name }) => name === data.measure)
  own.cells.forEach((cell, name) => {
    const [strong, words] = measure.cells[name] ?? [null, "no value"]
    cell.classList.toggle("blank", strong === null)
    cell.classList.toggle("full", strong > 0.85)
    cell.style.setProperty("--strong", `${Math.round(100 * (strong ?? 0))}%`)
    cell.setAttribute("aria-label", `head ${name}, ${measure.title} ${words}${data.about[name] ? `, ${data.about[name]}` : ""}`)
  })
  own.root.querySelector(".low").textContent = measure.low
  own.root.querySelector(".high").textContent = measure.high
  own.root.querySelector(".what").textContent = measure.title
}

function say(own, at) {
  const { data } = own, name = named(at), measure = data.measures.find(({ name }) => name === data.measure)
  const words = own.cells.has(name) ? [name, measure.cells[name]?.[1] ?? "no value", data.about[name]] : [data.hint]
  own.root.querySelector(".said").textContent = words.filter(Boolean).join(" · ")
}
