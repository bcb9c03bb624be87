// Drag the live temperature for 90 frames, as fast as the page draws: milliseconds between them, and what it shows then.
async ([from, to]) => {
  const every = (root, where) => [...root.querySelectorAll(where), ...[...root.querySelectorAll("*")].flatMap(
    part => part.shadowRoot ? every(part.shadowRoot, where) : [])]
  const picture = every(document, ".sharpen")[0], slider = picture.querySelector("input")
  const gaps = [], frame = () => new Promise(requestAnimationFrame)
  let last = await frame()
  for (let n = 0; n < 90; n++) {
    slider.value = from + ((to - from) * n) / 89
    slider.dispatchEvent(new Event("input"))
    const now = await frame()
    gaps.push(now - last)
    last = now
  }
  // Heads follow in the frames after.
  for (let n = 0; n < 60; n++) await frame()
  const heads = [...picture.querySelectorAll(".heads i")].map(one => [one.dataset.cell, Number(one.dataset.support), Number(one.dataset.entropy)])
  const { t, entropy, largest } = picture.dataset
  return { gaps, t: Number(t), entropy: Number(entropy), largest: Number(largest), heads }
}
