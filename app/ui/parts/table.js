// A table that sorts by a click on a head, where it has many rows, and, when asked, locks a row by click or arrow keys.
// Cells are text nodes.
const memory = new WeakMap()
const LONG = 36
// Rows that are seen at a glance have no need to be sorted.
const FEW = 8

export default function ({ parentElement, data: sent, setTriggerValue }) {
  const data = sent?.[0]
  const root = parentElement.querySelector(".table")
  if (!root || !data) return
  const own = memory.get(parentElement) ?? { id: null }
  memory.set(parentElement, own)
  if (own.id !== data.id) Object.assign(own, { id: data.id, sort: null, down: true, chosen: undefined })
  if (own.asked !== data.selected) own.chosen = data.selected
  own.asked = data.selected
  Object.assign(own, { data, send: setTriggerValue })
  draw(root, own)
}

function order(own) {
  const rows = own.data.columns[0].values.map((_, i) => i)
  if (own.sort === null) return rows
  const values = own.data.columns[own.sort].values
  const sign = own.down ? -1 : 1
  const numeric = own.data.columns[own.sort].kind !== "text"
  return rows.sort((a, b) => {
    const [x, y] = [values[a], values[b]]
    if (x === null || y === null) return (x === null) - (y === null)
    return sign * (numeric ? x - y : String(x).localeCompare(String(y)))
  })
}

function draw(root, own) {
  const { data } = own
  const frame = root.querySelector(".frame")
  frame.style.maxHeight = `${data.height}px`
  frame.classList.toggle("pick", data.pick)
  frame.setAttribute("aria-label", data.label)
  const longest = widest(data.columns)
  const head = document.createElement("tr"), sorts = data.columns[0].values.length > FEW
  data.columns.forEach((column, n) => {
    const th = document.createElement("th"), name = document.createElement(sorts && column.label ? "button" : "span")
    th.scope = "col"
    th.className = column.kind === "text" || column.kind === "token" ? "" : column.full ? "number meter" : "number"
    th.classList.toggle("spare", column.spare)
    th.title = column.help ?? ""
    if (own.sort === n) th.setAttribute("aria-sort", own.down ? "descending" : "ascending")
    name.textContent = column.label
    if (sorts) name.onclick = () => {
      own.down = own.sort === n ? !own.down : column.kind !== "text" && column.kind !== "token"
      own.sort = n
      draw(root, own)
    }
    th.append(name)
    head.append(th)
  })
  const rows = order(own)
  const body = rows.map((i) => {
    const tr = document.createElement("tr")
    tr.dataset.row = i
    if (data.pick) {
      tr.setAttribute("aria-selected", i === own.chosen)
      tr.onclick = () => choose(root, own, i === own.chosen && data.release ? null : i)
    }
    tr.append(...data.columns.map((column) => cell(column, i)))
    data.columns.forEach((column, n) => tr.children[n].classList.toggle("spare", column.spare))
    tr.children[longest]?.classList.add("fill")
    return tr
  })
  root.querySelector("thead").replaceChildren(head)
  root.querySelector("tbody").replaceChildren(...body)
  frame.onscroll = () => shade(root)
  own.sized ??= new ResizeObserver(() => shade(root))
  own.sized.observe(frame)
  shade(root)
  const more = root.querySelector(".more")
  more.textContent = data.more
  more.hidden = !data.more
  frame.onkeydown = (e) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[e.key]
    if (!data.pick || (!step && e.key !== "Escape")) return
    e.preventDefault()
    if (e.key === "Escape") return data.release ? choose(root, own, null) : undefined
    const at = rows.indexOf(own.chosen)
    const next = rows[Math.min(rows.length - 1, Math.max(0, at + step))]
    choose(root, own, next)
    root.querySelector(`tr[data-row="${next}"]`)?.scrollIntoView({ block: "nearest" })
  }
}

// The place of the column of long words on one line, which gets the width that the others leave; -1 where none are long.
function widest(columns) {
  const lengths = columns.map(({ kind, wrap, shown }) => (kind === "text" && !wrap ? Math.max(0, ...shown.map((words) => words.length)) : 0))
  return Math.max(...lengths) > LONG ? lengths.indexOf(Math.max(...lengths)) : -1
}

// Shadows at the sides where columns are out of sight.
function shade(root) {
  const frame = root.querySelector(".frame")
  root.classList.toggle("cut-left", frame.scrollLeft > 1)
  root.classList.toggle("cut-right", frame.scrollLeft + frame.clientWidth < frame.scrollWidth - 1)
}

function choose(root, own, row) {
  own.chosen = row
  root.querySelectorAll("tbody tr").forEach((tr) => tr.setAttribute("aria-selected", Number(tr.dataset.row) === row))
  own.send("row", row === null ? -1 : row)
}

function cell(column, i) {
  const td = document.createElement("td")
  const value = column.values[i]
  const text = column.shown?.[i] ?? (value === null ? "–" : String(value))
  if (column.kind === "token") {
    td.className = "token"
    td.textContent = text.replace(/\n/g, "↵").replace(/ /g, "·")
  } else if (column.kind === "text") {
    td.className = column.wrap ? "wrap" : ""
    td.textContent = text
    if (column.heads) td.dataset.head = text
    else td.title = text
  } else {
    td.className = "number"
    if (column.full && value !== null) {
      td.classList.add("meter")
      const bar = document.createElement("i"), span = document.createElement("span")
      bar.style.width = `${Math.max(0, Math.min(100, (100 * value) / column.full))}%`
      span.textContent = text
      td.append(bar, span)
    } else td.textContent = text
  }
  return td
}
