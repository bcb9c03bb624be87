// On a narrow screen the menu lies over the page: it closes when a stop of the tour opens.

const memory = new WeakMap()
const OPEN = "[data-testid=stSidebar][data-collapsed=false] [data-testid=stSidebarCollapseButton] button"

export default function ({ parentElement, data: sent }) {
  const step = sent?.[0]?.step
  if (!step || memory.get(parentElement) === step) return
  memory.set(parentElement, step)
  if (matchMedia("(max-width: 768px)").matches) document.querySelector(OPEN)?.click()
}
