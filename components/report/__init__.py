"""Makes the report of a run: one HTML file from the artifacts that the run left.

`data` has what a report shows, as plain values. `features`, `curves`, `evaluation` and
`artifacts` read them from files, `plots` places lines, and `page` writes the HTML.
"""
