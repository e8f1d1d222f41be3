"""The jobs: a plain function each, with a result that a table or JSON is made of."""
