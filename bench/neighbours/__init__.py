"""`make bench-neighbours`: what one hostile client does to a bystander, on our broker and on Apache Kafka.

`rows` declares what is done; `attacks` and `payloads` do it from a process of its own (`attacker`); `probe` is the bystander;
`measure` runs one row on one broker; `report` judges and prints.
"""
