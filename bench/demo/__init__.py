"""`make demo`: the main job, end to end. A broker, a generator of orders, the streaming job of examples/orders_pipeline.py, its progress
while it runs, and at the end the proof that nothing was lost, doubled or counted wrongly."""
