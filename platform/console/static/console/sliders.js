// Says the value of a slider beside it while it is moved: <input type="range" data-slider="id-of-output">.
document.addEventListener("input", (event) => {
  const said = event.target.dataset?.slider && document.getElementById(event.target.dataset.slider);
  if (said) said.textContent = `${event.target.value} %`;
});
