// The flame graph: a click, or Enter, widens a function to the whole graph; the button, or Esc, goes back.
for (const flame of document.querySelectorAll("svg.flame")) {
  const boxes = [...flame.querySelectorAll("svg[data-w]")];
  const back = flame.parentNode.querySelector("button");
  const show = (left, width) => {
    const pixels = flame.getBoundingClientRect().width;
    for (const box of boxes) {
      const from = Math.max(+box.dataset.l, left);
      const to = Math.min(+box.dataset.l + +box.dataset.w, left + width);
      box.style.display = to - from > 1e-7 ? "" : "none";
      box.setAttribute("x", `${(100 * (from - left)) / width}%`);
      box.setAttribute("width", `${Math.max(0, (100 * (to - from)) / width)}%`);
      box.classList.toggle("narrow", (pixels * (to - from)) / width < 40);
    }
    back.hidden = width === 1;
  };
  const zoom = (box) => box && show(+box.dataset.l, +box.dataset.w);
  flame.addEventListener("click", (event) => zoom(event.target.closest("svg[data-w]")));
  flame.addEventListener("keydown", (event) => {
    if (event.key === "Escape") show(0, 1);
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      zoom(event.target.closest("svg[data-w]"));
    }
  });
  back.addEventListener("click", () => show(0, 1));
  addEventListener("resize", () => back.hidden && show(0, 1));
  show(0, 1);
}
