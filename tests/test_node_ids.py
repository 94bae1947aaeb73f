"""Ids of several nodes."""

from tuimon.node_ids import id_on_node, node_of, own_id

PTHREAD_ID = 0x7FFF_FFFF_F000


def test_ids_of_the_first_node_are_its_own():
    assert [id_on_node(0, each) for each in (0, 7, PTHREAD_ID)] == [0, 7, PTHREAD_ID]


def test_node_and_own_id_are_told_apart():
    ids = {id_on_node(node, own): (node, own) for node in (0, 1, 4095) for own in (0, 1, 2**31, PTHREAD_ID)}
    assert len(ids) == 12
    assert {(node_of(each), own_id(each)) for each in ids} == set(ids.values())


def test_what_is_no_id_stays():
    assert own_id(-1) == -1
