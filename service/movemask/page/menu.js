// Menus that open under their name: what leads elsewhere, a press elsewhere, or Escape closes them.

/** Has all elements of class `menu` close. */
export function closeMenus() {
  const close = (kept) => document.querySelectorAll(".menu[open]").forEach((menu) => menu !== kept && (menu.open = false));
  document.addEventListener("pointerdown", ({ target }) => close(target.closest(".menu")));
  document.addEventListener("click", ({ target }) => target.closest(".menu a, .menu #show-keys, .menu #show-help") && close());
  document.addEventListener("keydown", (event) => {
    const menu = event.key === "Escape" && document.querySelector(".menu[open]");
    if (!menu) return;
    close();
    menu.querySelector("summary").focus();
  });
}
