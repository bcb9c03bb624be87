// The card of a head wherever its name stands on a page, "head 3.6" or "L3.H6": in a sentence, a table, a picture or a
// select box, under the pointer or on what has the keys.

const memory = new WeakMap()
const LISTED = /\bheads? (\d+\.\d+(?:(?:, and |, or |, | and | or )\d+\.\d+)*)(?!\d| of )/gi
const WRITER = /\bL(\d+)\.H(\d+)\b/g
const BOX = "[data-testid=stSelectbox]"

export default function ({ parentElement, data: sent }) {
  const tip = parentElement.querySelector(".head-card")
  if (!tip || !sent?.[0]) return
  const own = memory.get(parentElement) ?? {}
  memory.set(parentElement, own)
  own.listening?.abort()
  Object.assign(own, { tip, cards: sent[0].cards, listening: new AbortController() })
  const look = { signal: own.listening.signal, passive: true, capture: true }
  const hears = (kind, found) => document.addEventListener(kind, (event) => show(own, found(event, event.composedPath()[0])), look)
  hears("pointermove", under)
  hears("pointerdown", () => null)
  hears("focusin", (_, target) => of(target))
  hears("keyup", ({ key }, target) => key === "Escape" ? null : of(active(target) ?? target))
  return () => own.listening.abort()
}

// Heads that a text names: [{name, from, to}].
function names(text) {
  const found = [...text.matchAll(WRITER)].map((match) => ({ name: `${match[1]}.${match[2]}`, from: match.index, to: match.index + match[0].length }))
  for (const list of text.matchAll(LISTED)) {
    const first = list.index + list[0].length - list[1].length
    for (const { 0: name, index } of list[1].matchAll(/\d+\.\d+/g))
      found.push({ name, from: index ? first + index : list.index, to: first + index + name.length })
  }
  return found
}

// The head named under the pointer, and where: {name, box}.
function under({ clientX: x, clientY: y }, target) {
  const inside = ({ left, right, top, bottom }) => left <= x && x <= right && top <= y && y <= bottom
  // Nothing of a plot's words answers the pointer.
  const plot = target.closest?.(".js-plotly-plot")
  const elements = plot ? [...plot.querySelectorAll("text")].filter((word) => inside(word.getBoundingClientRect())) : [target]
  for (const node of elements.flatMap((element) => [...element.childNodes]).filter((child) => child.nodeType === Node.TEXT_NODE))
    for (const { name, from, to } of names(node.data)) {
      const range = document.createRange()
      range.setStart(node, from)
      range.setEnd(node, to)
      const box = [...range.getClientRects()].find(inside)
      if (box) return { name, box }
    }
  return of(target, "")
}

// The head that an element as a whole stands for: it is marked, its title begins with it, or it is the choice of a box.
function of(element, title = element.textContent.length < 60 ? element.textContent : "") {
  if (!element.closest) return null
  const marked = element.closest("[data-head]")?.dataset.head ?? ""
  const name = /^\d+\.\d+$/.test(marked) ? marked : chosen(element)
    ?? names(title || element.title || element.parentNode?.querySelector?.(":scope > title")?.textContent || "")[0]?.name
  return name ? { name, box: element.getBoundingClientRect() } : null
}

// Where the keys are in an open select box.
function active(target) {
  return document.getElementById(target.getAttribute?.("aria-activedescendant") ?? "")
}

const labelled = (box) => box?.querySelector("label")?.textContent.trim() ?? ""
const value = (box) => box?.querySelector("input")?.value ?? ""

// What a select box of heads says: "3.6 induction", or a number alone where another box has the layer.
function chosen(element) {
  const option = element.closest("[role=option]")
  const box = option ? document.querySelector(`${BOX}:has([aria-expanded=true])`) : element.closest(BOX)
  if (!/head/i.test(labelled(box)) || element.closest("label")) return null
  const words = option?.textContent ?? value(box)
  const named = words.match(/^\d+\.\d+\b/)?.[0]
  if (named || !/^(head )?\d+$/.test(words)) return named ?? null
  const layer = value([...document.querySelectorAll(BOX)].find((other) => labelled(other) === "Layer")).match(/\d+$/)?.[0]
  return layer ? `${layer}.${words.match(/\d+$/)[0]}` : null
}

function show({ tip, cards }, found) {
  const at = found ? `${found.name} ${found.box.left} ${found.box.top}` : ""
  if (at === (tip.dataset.at ?? "")) return
  tip.dataset.at = at
  tip.hidePopover()
  if (!found) return
  const name = document.createElement("b")
  name.textContent = `head ${found.name}`
  tip.replaceChildren(name, ` · ${cards[found.name] || "nothing is known of it in this text yet"}`)
  tip.showPopover()
  const { width, height } = tip.getBoundingClientRect(), { left, top, bottom } = found.box
  tip.style.left = `${Math.max(8, Math.min(innerWidth - width - 8, left))}px`
  // A title of the browser's own comes below the pointer.
  tip.style.top = `${top > height + 12 ? top - height - 8 : bottom + 8}px`
}
