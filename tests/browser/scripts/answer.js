// Times from the pointer on a token to the painted answer: window.answer, once the frame is drawn.
(text) => { window.answer = new Promise((done) => {
    const answered = (e) => {
        const token = e.composedPath().find((node) => node.dataset?.i)
        if (!token) return
        text.removeEventListener("pointerover", answered)
        const tip = text.getRootNode().querySelector(".tip")
        const places = (mark) => [...text.querySelectorAll(`.${mark}`)].map((span) => Number(span.dataset.i))
        const found = { token: Number(token.dataset.i), keys: places("key"), readers: places("reader") }
        found.tip = tip.hidden ? "" : tip.textContent
        requestAnimationFrame(() => {
            const { port1, port2 } = new MessageChannel()
            port1.onmessage = () => done({ ...found, painted: (performance.now() - e.timeStamp) / 1000 })
            port2.postMessage(null)  // comes after the frame
        })
    }
    text.addEventListener("pointerover", answered)  // after the text's own; from token to token it stays in there
}) }
