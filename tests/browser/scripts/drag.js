// Drag a slider over all of its places and leave it at the share `to` of its way, still held: the milliseconds between
// the frames that the browser drew meanwhile.
async (thumb, to) => {
  const frame = () => new Promise(requestAnimationFrame), took = []
  let last = await frame()
  for (let step = 0; step <= 60; step++) {
    thumb.value = Math.round(thumb.max * (step < 60 ? step / 60 : to))
    thumb.dispatchEvent(new Event("input"))
    const now = await frame()
    took.push(now - last)
    last = now
  }
  await frame()
  return took
}
