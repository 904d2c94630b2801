"""What SimCloud and moto answer alike: each keeps the other honest.

Left to the tests one folder up, as moto (5.2.5) does not behave there: names of groups and instances that are not there
(it answers 500), pages within a reservation, products and zones of Spot prices, and everything it lacks.
"""
