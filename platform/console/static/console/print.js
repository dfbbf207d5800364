// A button that prints the page; what print leaves out is said in strop.css.
document.addEventListener("click", (event) => {
  if (event.target.closest("[data-print]")) print();
});
