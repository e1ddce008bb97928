//! A network in a box: links, queues, switches, a virtual clock and seeded misfortune.
