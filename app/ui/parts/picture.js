// What the live pictures share: SVG nodes, logarithmic places, one drawing a frame. Exports nothing.

function node(name, attributes, parent, words) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name)
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value)
  if (words !== undefined) made.textContent = words
  parent?.append(made)
  return made
}

// Where `value` lies between `low` and `high` on a logarithmic axis, from 0 to 1, and back.
const placed = (value, low, high) => Math.log(value / low) / Math.log(high / low)
const valued = (place, low, high) => low * (high / low) ** place

// `draw` once before the next frame, however often it is asked for.
function eachFrame(draw) {
  let asked = false
  return () => {
    if (asked) return
    asked = true
    requestAnimationFrame(() => {
      asked = false
      draw()
    })
  }
}

// The points of a line as an SVG path; a missing one breaks it.
function path(points) {
  let pen = "M"
  return points.map(([x, y]) => {
    if (y === null) {
      pen = "M"
      return ""
    }
    const part = `${pen}${x.toFixed(1)} ${y.toFixed(1)}`
    pen = "L"
    return part
  }).join("")
}
