// The map of groups: every token of the text where the router sees it, coloured by its group. Exports nothing.

function mapped(sent) {
  return sent && { ...sent, xy: new Float32Array(bytesOf(sent.xy).buffer) }
}

// Draws the map into the card, with the groups as a list under it; a click on either isolates a group.
function map(root, own) {
  const body = root.querySelector(".card .body")
  const canvas = element("canvas", "map"), legendBox = element("div", "legend")
  canvas.title = "tokens by their routing vectors; click one to go to it"
  body.replaceChildren(canvas, element("p", "quiet", own.map.axes), legendBox)
  legend(root, own)
  points(root, own, null)
  canvas.onclick = (e) => {
    const i = nearest(own, canvas, e)
    if (i !== null) own.goto(i)
  }
  canvas.onpointermove = (e) => ring(root, own, canvas, nearest(own, canvas, e))
  canvas.tabIndex = 0
  canvas.setAttribute("role", "button")
  canvas.setAttribute("aria-label", "tokens by their routing vectors: arrow keys go from token to token, Enter goes to it in the text")
  let reached = -1
  canvas.onkeydown = (e) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[e.key], count = own.data.paint.length
    if (e.key === "Enter" && reached >= 0) own.goto(reached)
    if (!step) return
    e.preventDefault()
    const isolated = own.data.isolate ?? null, from = reached < 0 && step < 0 ? count : reached
    for (let i = from + step; i >= 0 && i < count; i += step) {
      if (isolated === null || own.data.paint[i] === isolated) {
        reached = i
        break
      }
    }
    if (reached >= 0) ring(root, own, canvas, reached)
  }
}

// A ring around one token, which the canvas names.
function ring(root, own, canvas, i) {
  points(root, own, i)
  if (i !== null) canvas.title = `“${wordOf(own, i)}”, group ${own.data.paint[i]}`
}

// Where every token lies, and a picture of them all: they stay, so that a ring costs no more in a long text.
function cloud(root, own, width, height, scale) {
  const { data } = own, dark = isDark(root), isolated = data.isolate ?? null
  const layer = new OffscreenCanvas(width, height), pen = layer.getContext("2d"), size = 2.2 * scale
  const spots = new Float32Array(own.map.xy.length)
  for (let n = 0; n < spots.length; n++) {
    const [low, high] = own.map.ranges[n % 2], part = (own.map.xy[n] - low) / (high - low || 1)
    spots[n] = 6 + (n % 2 ? (1 - part) * (height - 12) : part * (width - 12))
  }
  for (let i = 0; i < data.paint.length; i++) {
    const group = data.paint[i], p = data.palette[group]
    if (!p) continue
    pen.globalAlpha = isolated !== null && isolated !== group ? 0.08 : 0.7
    pen.fillStyle = dark ? p.dark : p.light
    pen.fillRect(spots[2 * i] - size / 2, spots[2 * i + 1] - size / 2, size, size)
  }
  return { layer, spots }
}

// Draws all points; the token in use has a ring.
function points(root, own, ringed) {
  const canvas = root.querySelector("canvas.map")
  if (!canvas) return
  const scale = devicePixelRatio || 1
  const width = Math.round(canvas.clientWidth * scale), height = Math.round(canvas.clientHeight * scale)
  if (!width || !height) return
  const look = [own.data.id, own.data.isolate, width, height, isDark(root)].join()
  if (own.cloud?.look !== look) own.cloud = { look, ...cloud(root, own, width, height, scale) }
  Object.assign(canvas, { width, height })
  const pen = canvas.getContext("2d")
  pen.drawImage(own.cloud.layer, 0, 0)
  if (ringed === null) return
  pen.strokeStyle = getComputedStyle(root).getPropertyValue("--st-text-color")
  pen.lineWidth = 2 * scale
  pen.beginPath()
  pen.arc(own.cloud.spots[2 * ringed], own.cloud.spots[2 * ringed + 1], 6 * scale, 0, 7)
  pen.stroke()
}

// The token whose point lies within 10 px of the pointer.
function nearest(own, canvas, e) {
  const box = canvas.getBoundingClientRect(), scale = canvas.width / box.width, { spots } = own.cloud
  const [x, y] = [(e.clientX - box.left) * scale, (e.clientY - box.top) * scale]
  let best = null, least = (10 * scale) ** 2
  for (let i = 0; i < own.data.paint.length; i++) {
    const far = (spots[2 * i] - x) ** 2 + (spots[2 * i + 1] - y) ** 2
    if (far < least) [best, least] = [i, far]
  }
  return best
}
