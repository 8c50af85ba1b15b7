"""The network of a sandbox: how its sockets come to belong to a process on the host.

`handover` is the host's side and `helper` the side of the process that goes in. `model`, `netlink`,
`nftables`, `routes`, `capture` and `captured` are about bytes and values; `kernel`, `joining`, `furnish`,
`listening`, `proof` and `connector` act.
"""
