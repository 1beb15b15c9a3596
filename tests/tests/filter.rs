// SPDX-License-Identifier: MIT OR Apache-2.0
//! The device filter on real cgroups: what a process in the cgroup can open before, between and after.
//!
//! A number that no driver has, such as 504:0, answers ENXIO where the filter allows it and EPERM where not.

#[path = "filter/bed.rs"]
mod bed;

use bed::{Bed, ENXIO, EPERM, OK, Program, bytes, deny_all, only};
use gpuhook_core::bpf::Verdict;
use gpuhook_core::device::{Access, DeviceId, DeviceRule};
use gpuhook_linux::filter::handback::{self, HandbackError, Owner};
use gpuhook_linux::filter::{FilterError, Method, Options, Pins, allow, judge};
use gpuhook_linux::sys::bpf::{self, AttachFlags};

const NULL: (u32, u32) = (1, 3);
const ZERO: (u32, u32) = (1, 5);
/// No driver has it.
const NOBODY: (u32, u32) = (504, 0);

const MULTI: AttachFlags = AttachFlags::ALLOW_MULTI;
const PREPEND: Options<'_> = Options { method: Method::Prepend, pins: None };

fn rules(devices: &[(u32, u32)]) -> Vec<DeviceRule> {
    let access = Access::READ | Access::WRITE;
    devices.iter().map(|(major, minor)| DeviceRule { id: DeviceId::new(*major, *minor), access }).collect()
}

fn wrap_into(pins: &Pins) -> Options<'_> {
    Options { method: Method::Wrap, pins: Some(pins) }
}

#[test]
fn a_process_in_the_cgroup_can_open_the_devices_asked_for_and_no_other() {
    let Some(bed) = Bed::new() else { return };
    let pins = bed.pins();
    for (name, options) in [("auto", Options::default()), ("prepend", PREPEND), ("wrap", wrap_into(&pins))] {
        let top = bed.cgroup("top");
        let owners = bed.attach(&top, &deny_all(), MULTI);
        for device in [NULL, ZERO, NOBODY] {
            assert_eq!(bed.open(&top, device), EPERM, "{name}, before, {device:?}");
        }
        let applied = allow(&bed.path(&top, &top), &rules(&[NULL, NOBODY]), options).unwrap();
        assert!(!applied.is_unchanged(), "{name}");
        assert_eq!(bed.open(&top, NULL), OK, "{name}");
        assert_eq!(bed.open(&top, NOBODY), ENXIO, "{name}");
        assert_eq!(bed.open(&top, ZERO), EPERM, "{name}");
        assert_eq!(bed.open(&top, (504, 1)), EPERM, "{name}");
        assert_eq!(bed.mknod(&top, NOBODY), EPERM, "{name}: m is not granted");
        assert_eq!(bed.ids(&top).len(), 1, "{name}");
        assert_ne!(bed.ids(&top), [owners.id()], "{name}");

        applied.undo().unwrap();
        assert_eq!(bed.ids(&top), [owners.id()], "{name}: the owner's very program is back");
        assert_eq!(bed.open(&top, NULL), EPERM, "{name}, after undo");
        assert_eq!(bed.pinned(), 0, "{name}");
        bed.remove(&top);
    }
}

#[test]
fn what_the_owner_allowed_and_refused_stays_so() {
    let Some(bed) = Bed::new() else { return };
    let pins = bed.pins();
    for (name, options) in [("prepend", PREPEND), ("wrap", wrap_into(&pins))] {
        let top = bed.cgroup("top");
        bed.attach(&top, &only(ZERO), MULTI);
        drop(allow(&bed.path(&top, &top), &rules(&[NOBODY]), options).unwrap());
        assert_eq!(bed.open(&top, ZERO), OK, "{name}");
        assert_eq!(bed.open(&top, NOBODY), ENXIO, "{name}");
        assert_eq!(bed.open(&top, NULL), EPERM, "{name}");
        bed.remove(&top);
    }
}

#[test]
fn a_second_run_with_the_same_rules_changes_nothing() {
    let Some(bed) = Bed::new() else { return };
    let pins = bed.pins();
    for (name, options) in [("prepend", PREPEND), ("wrap", wrap_into(&pins))] {
        let top = bed.cgroup("top");
        bed.attach(&top, &deny_all(), MULTI);
        let path = bed.path(&top, &top);
        drop(allow(&path, &rules(&[NULL, NOBODY]), options).unwrap());
        let ids = bed.ids(&top);
        // The order of the rules and the other way of replacing make no difference.
        for (rules, options) in [
            (rules(&[NULL, NOBODY]), options),
            (rules(&[NOBODY, NULL]), options),
            (rules(&[NULL, NOBODY]), Options::default()),
        ] {
            assert!(allow(&path, &rules, options).unwrap().is_unchanged(), "{name}");
            assert_eq!(bed.ids(&top), ids, "{name}");
        }
        bed.remove(&top);
    }
}

#[test]
fn a_second_run_with_other_rules_replaces_the_first_and_never_grows() {
    let Some(bed) = Bed::new() else { return };
    let pins = bed.pins();
    for (name, options) in [("prepend", PREPEND), ("wrap", wrap_into(&pins))] {
        let top = bed.cgroup("top");
        bed.attach(&top, &deny_all(), MULTI);
        let path = bed.path(&top, &top);
        let mut lengths = Vec::new();
        for _ in 0..3 {
            drop(allow(&path, &rules(&[NULL]), options).unwrap());
            assert_eq!((bed.open(&top, NULL), bed.open(&top, ZERO)), (OK, EPERM), "{name}");
            drop(allow(&path, &rules(&[ZERO]), options).unwrap());
            assert_eq!((bed.open(&top, NULL), bed.open(&top, ZERO)), (EPERM, OK), "{name}");
            lengths.push(bed.insns(&top));
        }
        assert!(lengths.iter().all(|length| *length == lengths[0]), "{name}: {lengths:?}");
        bed.remove(&top);
    }
}

#[test]
fn where_nothing_is_attached_nothing_is_added() {
    let Some(bed) = Bed::new() else { return };
    let top = bed.cgroup("top");
    assert!(allow(&bed.path(&top, &top), &rules(&[NULL]), Options::default()).unwrap().is_unchanged());
    assert!(bed.ids(&top).is_empty());
}

#[test]
fn a_program_that_already_allows_is_left_alone() {
    let Some(bed) = Bed::new() else { return };
    let top = bed.cgroup("top");
    let owners = bed.attach(&top, &only(NULL), MULTI);
    assert!(allow(&bed.path(&top, &top), &rules(&[NULL]), Options::default()).unwrap().is_unchanged());
    assert_eq!(bed.ids(&top), [owners.id()]);
}

#[test]
fn programs_attached_without_multi_are_replaced_and_put_back() {
    let Some(bed) = Bed::new() else { return };
    for flags in [AttachFlags::empty(), AttachFlags::ALLOW_OVERRIDE] {
        let top = bed.cgroup("top");
        let owners = bed.attach(&top, &deny_all(), flags);
        let applied = allow(&bed.path(&top, &top), &rules(&[NULL]), Options::default()).unwrap();
        assert_eq!((bed.open(&top, NULL), bed.open(&top, ZERO)), (OK, EPERM), "{flags:?}");
        applied.undo().unwrap();
        assert_eq!(bed.ids(&top), [owners.id()], "{flags:?}");
        bed.remove(&top);
    }
}

#[test]
fn each_of_several_programs_and_each_own_cgroup_is_opened() {
    let Some(bed) = Bed::new() else { return };
    let top = bed.cgroup("top");
    let leaf = bed.cgroup("top/ns");
    bed.attach(&top, &deny_all(), MULTI);
    bed.attach(&top, &only(ZERO), MULTI);
    bed.attach(&leaf, &deny_all(), MULTI);
    let applied = allow(&bed.path(&leaf, &top), &rules(&[NULL]), Options::default()).unwrap();
    assert_eq!((bed.open(&leaf, NULL), bed.open(&leaf, ZERO)), (OK, EPERM));
    assert_eq!(applied.steps().count(), 3);
    applied.undo().unwrap();
    assert_eq!(bed.open(&leaf, NULL), EPERM);
}

#[test]
fn a_program_on_the_top_is_found_from_an_inner_leaf() {
    let Some(bed) = Bed::new() else { return };
    let top = bed.cgroup("129");
    let leaf = bed.cgroup("129/ns");
    bed.attach(&top, &deny_all(), MULTI);
    drop(allow(&bed.path(&leaf, &top), &rules(&[NULL]), Options::default()).unwrap());
    assert_eq!((bed.open(&leaf, NULL), bed.open(&leaf, ZERO)), (OK, EPERM));
}

#[test]
fn a_refusing_ancestor_is_named_and_not_touched() {
    let Some(bed) = Bed::new() else { return };
    let above = bed.cgroup("slice");
    let top = bed.cgroup("slice/top");
    let policy = bed.attach_named(c"policy", &above, &only(ZERO), MULTI);
    let owners = bed.attach_named(c"manager", &top, &deny_all(), MULTI);
    let path = bed.path(&top, &top);
    drop(allow(&path, &rules(&[NULL, ZERO]), Options::default()).unwrap());
    assert_eq!((bed.open(&top, NULL), bed.open(&top, ZERO)), (EPERM, OK));
    assert_eq!(bed.ids(&above), [policy.id()]);

    let judgements = judge(&path, &rules(&[NULL, ZERO])).unwrap();
    let [own, ancestor] = &judgements[..] else { panic!("{judgements:?}") };
    assert_eq!((own.own, own.worst(), own.program.as_str()), (true, Verdict::Allow, "gpuhook_pre"));
    assert_eq!((ancestor.own, ancestor.program.as_str(), ancestor.id), (false, "policy", Some(policy.id())));
    assert!(ancestor.cgroup.ends_with("/slice"), "{}", ancestor.cgroup);
    assert_eq!(ancestor.refused().collect::<Vec<_>>(), rules(&[NULL]));
    drop(owners);
}

#[test]
fn the_judgement_agrees_with_open() {
    let Some(bed) = Bed::new() else { return };
    let pins = bed.pins();
    for (name, options) in [("prepend", PREPEND), ("wrap", wrap_into(&pins))] {
        let top = bed.cgroup("top");
        bed.attach(&top, &only(ZERO), MULTI);
        let path = bed.path(&top, &top);
        drop(allow(&path, &rules(&[NOBODY]), options).unwrap());
        for device in [NULL, ZERO, NOBODY, (504, 1)] {
            let expected = if bed.open(&top, device) == EPERM { Verdict::Deny } else { Verdict::Allow };
            let judgements = judge(&path, &rules(&[device])).unwrap();
            assert_eq!(judgements.iter().map(|it| it.worst()).max(), Some(expected), "{name}, {device:?}");
        }
        bed.remove(&top);
    }
}

#[test]
fn a_program_that_cannot_be_prepended_to_is_wrapped_and_the_wrap_outlives_its_maker() {
    let Some(bed) = Bed::new() else { return };
    let pins = bed.pins();
    let top = bed.cgroup("top");
    let owners = bed.attach(&top, &bed::deny_all_with_a_call(), MULTI);
    let path = bed.path(&top, &top);
    // Nowhere to keep the array: refused with the reason, and nothing changed.
    let error = allow(&path, &rules(&[NULL]), Options::default()).unwrap_err();
    assert!(bed::chain(&error).contains("instruction 0 calls a function"), "{}", bed::chain(&error));
    assert!(bed::chain(&error).contains("mount -t bpf"), "{}", bed::chain(&error));
    assert_eq!(bed.ids(&top), [owners.id()]);
    // With all descriptors closed only the pin keeps the owner's program in the array.
    drop(allow(&path, &rules(&[NULL]), Options { method: Method::Auto, pins: Some(&pins) }).unwrap());
    drop(owners);
    assert_eq!((bed.open(&top, NULL), bed.open(&top, ZERO)), (OK, EPERM));
    bed.wait_until_deferred_work_is_done();
    assert_eq!((bed.open(&top, NULL), bed.open(&top, ZERO)), (OK, EPERM));
    assert_eq!(bed.pinned(), 1);
    pins.release().unwrap();
    assert_eq!(bed.pinned(), 0);
    bed.wait_until_deferred_work_is_done();
    assert!(matches!(allow(&path, &rules(&[ZERO]), wrap_into(&pins)), Err(FilterError::Lost { .. })));
}

#[test]
fn releasing_one_containers_pins_leaves_its_neighbours_alone() {
    let Some(bed) = Bed::new() else { return };
    let containers = ["c.1", "c_1", "c", "c-0"];
    for container in containers {
        let top = bed.cgroup(container);
        bed.attach(&top, &only(ZERO), MULTI);
        drop(allow(&bed.path(&top, &top), &rules(&[NULL]), wrap_into(&bed.pins_of(container))).unwrap());
    }
    for (gone, container) in containers.iter().enumerate() {
        assert_eq!(bed.pinned(), containers.len() - gone);
        bed.pins_of(container).release().unwrap();
        bed.wait_until_deferred_work_is_done();
        for other in &containers[gone + 1..] {
            let top = bed.path_of(other);
            assert_eq!((bed.open(&top, NULL), bed.open(&top, ZERO)), (OK, OK), "{other} after {container}");
        }
    }
}

#[test]
fn programs_loaded_with_an_attach_type_are_wrapped_as_well() {
    let Some(bed) = Bed::new() else { return };
    let pins = bed.pins();
    let top = bed.cgroup("top");
    let typed = bpf::prog_load(c"typed", &bytes(&only(ZERO)), bpf::CGROUP_DEVICE_ATTACH).unwrap();
    let _owners = bed.attach_program(&top, typed, MULTI);
    drop(allow(&bed.path(&top, &top), &rules(&[NULL]), wrap_into(&pins)).unwrap());
    assert_eq!((bed.open(&top, NULL), bed.open(&top, ZERO), bed.open(&top, NOBODY)), (OK, OK, EPERM));
}

#[test]
fn a_hardened_host_gets_its_devices_too() {
    let Some(bed) = Bed::alone() else { return };
    let pins = bed.pins();
    let options = Options { method: Method::Auto, pins: Some(&pins) };
    let _harden = bed::Sysctl::set("/proc/sys/net/core/bpf_jit_harden", "2");
    for (restrict, name) in [("0", "gpuhook_pre"), ("2", "gpuhook_dev")] {
        let _restrict = bed::Sysctl::set("/proc/sys/kernel/kptr_restrict", restrict);
        let top = bed.cgroup("top");
        let owners = bed.attach(&top, &only(ZERO), MULTI);
        let path = bed.path(&top, &top);
        let applied = allow(&path, &rules(&[NULL]), options).unwrap();
        assert_eq!(bed.name(&top), name, "kptr_restrict={restrict}");
        assert_eq!((bed.open(&top, NULL), bed.open(&top, ZERO), bed.open(&top, NOBODY)), (OK, OK, EPERM), "{restrict}");
        let ids = bed.ids(&top);
        assert!(allow(&path, &rules(&[NULL]), options).unwrap().is_unchanged(), "kptr_restrict={restrict}");
        assert_eq!(bed.ids(&top), ids);
        // Other rules over ours.
        let second = allow(&path, &rules(&[NOBODY]), options).unwrap();
        assert_eq!(
            (bed.open(&top, NULL), bed.open(&top, ZERO), bed.open(&top, NOBODY)),
            (EPERM, OK, ENXIO),
            "{restrict}"
        );
        second.undo().unwrap();
        applied.undo().unwrap();
        assert_eq!(bed.ids(&top), [owners.id()]);
        bed.remove(&top);
    }
}

#[test]
fn two_thousand_channels_load_and_answer() {
    let Some(bed) = Bed::new() else { return };
    let pins = bed.pins();
    let channels: Vec<_> = (0..2048).map(|minor| (508, minor)).collect();
    let scattered: Vec<_> = (0..2100).map(|number| (508, number * 2)).collect();
    for (name, options) in [("prepend", PREPEND), ("wrap", wrap_into(&pins))] {
        for (devices, last, beyond) in [(&channels, 2047, 2048), (&scattered, 4198, 4197)] {
            let top = bed.cgroup("top");
            bed.attach(&top, &deny_all(), MULTI);
            let path = bed.path(&top, &top);
            drop(allow(&path, &rules(devices), options).unwrap());
            assert_eq!((bed.open(&top, (508, last)), bed.open(&top, (508, beyond))), (ENXIO, EPERM), "{name}");
            assert!(allow(&path, &rules(devices), options).unwrap().is_unchanged(), "{name}");
            bed.remove(&top);
        }
    }
}

#[test]
fn a_program_that_its_owner_swaps_meanwhile_is_tried_again() {
    let Some(bed) = Bed::new() else { return };
    for _ in 0..40 {
        let top = bed.cgroup("top");
        let first = bed.attach(&top, &deny_all(), MULTI);
        let path = bed.path(&top, &top);
        // The owner replaces its program by the next one as fast as it can, until it finds ours in its place.
        let owner = bed.swap_forever(&top, first, &deny_all());
        let applied = allow(&path, &rules(&[NULL]), Options::default());
        applied.unwrap();
        owner.ends();
        assert_eq!((bed.open(&top, NULL), bed.open(&top, ZERO)), (OK, EPERM));
        assert_eq!(bed.ids(&top).len(), 1);
        bed.remove(&top);
    }
}

#[test]
fn a_failed_step_leaves_everything_as_it_was() {
    let Some(bed) = Bed::new() else { return };
    let top = bed.cgroup("top");
    let leaf = bed.cgroup("top/ns");
    let outer = bed.attach(&top, &bed::deny_all_with_a_call(), MULTI);
    let inner = bed.attach(&leaf, &deny_all(), MULTI);
    // The leaf comes first and succeeds, then the top cannot be prepended to.
    let error = allow(&bed.path(&leaf, &top), &rules(&[NULL]), PREPEND).unwrap_err();
    assert!(matches!(error, FilterError::Replace { .. }), "{error:?}");
    assert_eq!((bed.ids(&leaf), bed.ids(&top)), (vec![inner.id()], vec![outer.id()]));
}

#[test]
fn a_program_held_by_a_link_is_named_and_left_alone() {
    let Some(bed) = Bed::new() else { return };
    let top = bed.cgroup("top");
    let _link = bed.link(&top, &deny_all());
    let ids = bed.ids(&top);
    let error = allow(&bed.path(&top, &top), &rules(&[NULL]), Options::default()).unwrap_err();
    assert!(matches!(error, FilterError::Linked { .. }), "{error:?}");
    assert!(error.to_string().contains("linked"), "{error}");
    assert_eq!(bed.ids(&top), ids);
}

#[test]
fn a_hand_back_never_refuses_an_open_and_leaves_the_owners_program_alone() {
    let Some(bed) = Bed::new() else { return };
    let pins = bed.pins();
    for (name, options) in [("prepend", PREPEND), ("wrap", wrap_into(&pins))] {
        let top = bed.cgroup("top");
        let owners = bed.attach(&top, &deny_all(), MULTI);
        let path = bed.path(&top, &top);
        drop(allow(&path, &rules(&[NULL]), options).unwrap());
        let mut opener = bed.open_forever(&top, NULL);
        opener.opens_some_more();
        let bridge = handback::begin(&path, &rules(&[NULL]), Owner::Any).unwrap();
        assert_eq!(bed.ids(&top)[0], owners.id(), "{name}: the owner's own program is back");
        opener.opens_some_more();
        assert_eq!(bed.open(&top, ZERO), EPERM, "{name}: the bridge opens nothing else");
        let judgements = judge(&path, &rules(&[NULL, ZERO])).unwrap();
        assert_eq!(judgements[0].refused().collect::<Vec<_>>(), rules(&[ZERO]), "{name}");
        // Not before the owner has the rules.
        let (bridge, early) = bridge.finish().unwrap_err();
        assert!(matches!(early, HandbackError::NotYet { .. }), "{early:?}");
        opener.opens_some_more();
        let updated = bed.replace(&top, &owners, &only(NULL));
        opener.opens_some_more();
        bridge.finish().unwrap();
        opener.opens_some_more();
        assert_eq!(bed.ids(&top), [updated.id()], "{name}");
        assert_eq!(opener.refused(), 0, "{name}");
        bed.remove(&top);
        pins.release().unwrap();
    }
}

#[test]
fn a_hand_back_can_be_undone_and_a_left_over_bridge_goes_at_the_next_run() {
    let Some(bed) = Bed::new() else { return };
    let top = bed.cgroup("top");
    let owners = bed.attach(&top, &deny_all(), MULTI);
    let path = bed.path(&top, &top);
    drop(allow(&path, &rules(&[NULL]), Options::default()).unwrap());
    let ours = bed.ids(&top);
    handback::begin(&path, &rules(&[NULL]), Owner::Any).unwrap().undo().unwrap();
    assert_eq!(bed.ids(&top), ours);
    // Killed after the first half.
    drop(handback::begin(&path, &rules(&[NULL]), Owner::Any).unwrap());
    assert_eq!((bed.open(&top, NULL), bed.ids(&top).len()), (OK, 2));
    drop(allow(&path, &rules(&[NULL]), Options::default()).unwrap());
    assert_eq!((bed.open(&top, NULL), bed.ids(&top).len()), (OK, 1));
    assert_ne!(bed.ids(&top), [owners.id()]);
}

#[test]
fn there_is_nothing_to_hand_back_where_the_owner_is_gone() {
    let Some(bed) = Bed::new() else { return };
    let top = bed.cgroup("top");
    let owners: Program = bed.attach(&top, &deny_all(), MULTI);
    let path = bed.path(&top, &top);
    drop(allow(&path, &rules(&[NULL]), Options::default()).unwrap());
    drop(owners);
    bed.wait_until_deferred_work_is_done();
    assert!(matches!(handback::begin(&path, &rules(&[NULL]), Owner::Any), Err(HandbackError::Nothing)));
    assert_eq!((bed.open(&top, NULL), bed.ids(&top).len()), (OK, 1));
}

#[test]
fn the_v1_lists_of_the_top_and_the_inner_directory_are_opened() {
    let Some(bed) = Bed::v1() else { return };
    let top = bed.cgroup("129");
    bed.write(&top, "devices.deny", "a");
    bed.write(&top, "devices.allow", "c 1:5 rwm");
    // Inherits.
    let leaf = bed.cgroup("129/ns");
    bed.write(&top, "devices.allow", "c 1:3 r");
    let before = (bed.read(&top, "devices.list"), bed.read(&leaf, "devices.list"));
    assert_eq!((bed.open(&leaf, NULL), bed.open(&leaf, NOBODY)), (EPERM, EPERM));
    let path = bed.path(&leaf, &top);
    let applied = allow(&path, &rules(&[NULL, NOBODY]), Options::default()).unwrap();
    assert_eq!((bed.open(&leaf, NULL), bed.open(&leaf, NOBODY), bed.open(&leaf, ZERO)), (OK, ENXIO, OK));
    assert_eq!((bed.open(&leaf, (504, 1)), bed.mknod(&leaf, NOBODY)), (EPERM, EPERM));
    assert!(allow(&path, &rules(&[NULL, NOBODY]), Options::default()).unwrap().is_unchanged());
    assert!(judge(&path, &rules(&[NULL])).unwrap().iter().all(|it| it.worst() == Verdict::Allow));
    applied.undo().unwrap();
    assert_eq!((bed.read(&top, "devices.list"), bed.read(&leaf, "devices.list")), before);
    assert_eq!(bed.open(&leaf, NULL), EPERM);
}

#[test]
fn a_refusing_v1_ancestor_is_named_and_nothing_is_left() {
    let Some(bed) = Bed::v1() else { return };
    let above = bed.cgroup("slice");
    bed.write(&above, "devices.deny", "a");
    let top = bed.cgroup("slice/top");
    bed.write(&above, "devices.allow", "c 1:3 rw");
    let path = bed.path(&top, &top);
    let error = allow(&path, &rules(&[NULL, NOBODY]), Options::default()).unwrap_err();
    assert!(bed::chain(&error).contains("c 504:0 rw"), "{}", bed::chain(&error));
    assert_eq!(bed.read(&top, "devices.list"), "");
    let judgements = judge(&path, &rules(&[NOBODY])).unwrap();
    let refusing: Vec<_> = judgements.iter().filter(|it| !it.own && it.worst() == Verdict::Deny).collect();
    assert!(refusing.len() == 1 && refusing[0].cgroup.ends_with("/slice"), "{judgements:?}");
}
