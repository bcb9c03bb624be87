// Drop a file, by its name and its bytes in base64, on the painted text.
([name, data]) => {
  const files = new DataTransfer()
  files.items.add(new File([Uint8Array.from(atob(data), (c) => c.charCodeAt(0))], name, { type: "text/plain" }))
  const root = [...document.querySelectorAll("*")].map((one) => one.shadowRoot?.querySelector(".painted")).find(Boolean)
  const screen = root ?? document.querySelector(".painted")
  screen.dispatchEvent(new DragEvent("drop", { dataTransfer: files, bubbles: true }))
}
