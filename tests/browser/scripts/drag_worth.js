// Moves a slider over all its stops and back, one a frame; milliseconds from each input to the end of its frame.
async name => {
  const range = document.querySelector(`.worth.inputs input[data-name=${name}]`), took = []
  const stops = Array.from({ length: +range.max + 1 }, (_, n) => n)
  for (const stop of [...stops, ...stops.reverse(), +range.defaultValue || 9]) {
    await new Promise(requestAnimationFrame)
    const began = performance.now()
    range.value = stop
    range.dispatchEvent(new Event("input", { bubbles: true }))
    document.querySelector(".worth.picture svg")?.getBoundingClientRect()
    took.push(performance.now() - began)
  }
  return took
}
