// From the input to the end of the frame that shows it, for each value of the slider.
async slider => {
  const took = []
  for (const value of [1, 3, 5, 7, 9, 6, 4, 2, 8, 0]) {
    slider.value = value
    const began = performance.now()
    slider.dispatchEvent(new Event("input", { bubbles: true }))
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done)))
    took.push(performance.now() - began)
    await new Promise((done) => setTimeout(done, 60))
  }
  return took
}
