// Copies the page's address, which holds the whole selection; where the browser refuses, shows it to be copied by hand.
export default function ({ parentElement, data: sent }) {
  const data = sent?.[0]
  const root = parentElement.querySelector(".link")
  if (!root || !data) return
  const button = root.querySelector("button"), input = root.querySelector("input")
  button.textContent = data.label
  button.onclick = async () => {
    const address = window.location.href
    try {
      await navigator.clipboard.writeText(address)
      button.textContent = data.done
    } catch {
      input.hidden = false
      input.value = address
      input.select()
    }
    setTimeout(() => { button.textContent = data.label }, 2000)
  }
}
