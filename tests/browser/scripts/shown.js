// Seconds from a key to all that is `wanted` and to charts that are drawn anew: window.shown.
([wanted, charts, patience]) => { window.shown = new Promise((done, failed) => {
    let began = null
    addEventListener("keydown", () => { began = performance.now() }, { once: true, capture: true })
    setTimeout(() => failed(new Error(`never shown: ${JSON.stringify([...wanted, ...charts])}`)), patience)
    // Tables and texts have roots of their own.
    const all = (root, where) => [...root.querySelectorAll(where), ...[...root.querySelectorAll("*")].flatMap(
        (part) => part.shadowRoot ? all(part.shadowRoot, where) : [])]
    const there = ([where, words]) => all(document, where).some(
        (part) => part.getClientRects().length > 0 && part.textContent.includes(words))
    const drawing = (chart) => [...document.querySelectorAll(`.st-key-${chart}`)].flatMap(
        (box) => all(box, ".main-svg, .curves svg")).map(
        (picture) => picture.querySelector(".mlayer *, .handle") ? picture.outerHTML : "").join("")
    const before = charts.map(drawing)
    const anew = (chart, at) => !["", before[at]].includes(drawing(chart))
    const look = () => began !== null && wanted.every(there) && charts.every(anew)
        ? done((performance.now() - began) / 1000) : requestAnimationFrame(look)
    requestAnimationFrame(look)
}) }
