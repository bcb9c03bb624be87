// From the pointer on a token to the end of the frame that shows what it reads, for tokens in view.
async text => {
  const seen = (span) => span.offsetTop > text.scrollTop && span.offsetTop < text.scrollTop + text.clientHeight - 40
  const spans = [...text.querySelectorAll(".t")].filter((span) => span.textContent.trim() && seen(span)).slice(0, 40)
  const took = []
  for (const span of spans) {
    const began = performance.now()
    span.dispatchEvent(new PointerEvent("pointerover", { bubbles: true }))
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done)))
    took.push(performance.now() - began)
    await new Promise((done) => setTimeout(done, 30))
  }
  return took
}
