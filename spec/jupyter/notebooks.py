"""Execute notebooks: notebooks.py KERNEL NOTEBOOK... Prints the outputs; fails where a cell fails."""
import os
import sys

import nbclient
import nbformat

for path in sys.argv[2:]:
    notebook = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(notebook, timeout=300, kernel_name=sys.argv[1],
                                     resources={"metadata": {"path": os.path.dirname(path) or "."}})
    client.execute()
    for number, cell in enumerate(notebook.cells):
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            text = output.get("text", "") or data.get("text/plain", "")
            print(f"{os.path.basename(path)} {number} {output.output_type} {' '.join(sorted(data))} {text!r}"[:400])
