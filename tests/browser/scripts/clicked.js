// Click a button of this name as soon as it is there beside these words.
([where, words, name]) => {
    // Tables and texts have roots of their own.
    const all = (root, where) => [...root.querySelectorAll(where), ...[...root.querySelectorAll("*")].flatMap(
        (part) => part.shadowRoot ? all(part.shadowRoot, where) : [])]
    const look = () => {
        const button = all(document, "button").find((one) => one.textContent.trim().endsWith(name) && !one.disabled)
        if (button && all(document, where).some((part) => part.textContent.includes(words))) button.click()
        else requestAnimationFrame(look)
    }
    requestAnimationFrame(look)
}
