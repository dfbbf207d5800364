"""Figures, made in Python and drawn by Plotly in the browser.

They carry data, hover texts and series colours; the frame's colours (text, grid, paper) come from the page's theme in
charts.js. Every estimate is drawn with its interval, every hover names n. What is missing is a gap, never a 0.
One module an idea; console.plots gathers their public names.
"""
