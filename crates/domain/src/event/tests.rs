use super::*;

fn event(kind: EventType) -> Event {
    let mut event = Event::new(kind, "acme".parse().unwrap(), Micros(5));
    event.source = Some("alice".parse().unwrap());
    event.target = Some("bob".parse().unwrap());
    event.task_id = Some(TaskId(Uuid::from_u128(7)));
    event
}

#[test]
fn names_are_read_back_and_differ() {
    for kind in EventType::ALL {
        assert_eq!(kind.as_str().parse(), Ok(*kind));
        assert_eq!(EventType::ALL.iter().filter(|k| k.as_str() == kind.as_str()).count(), 1);
    }
    assert!("handoff.exploded".parse::<EventType>().is_err());
}

#[test]
fn a_filter_takes_what_meets_all_of_it() {
    let event = event(EventType::HandoffAccepted);
    let with = |change: fn(&mut EventFilter)| {
        let mut filter = EventFilter::default();
        change(&mut filter);
        filter.takes(&event)
    };
    assert!(with(|_| ()));
    assert!(with(|f| f.types = vec![EventType::HandoffAccepted]));
    assert!(!with(|f| f.types = vec![EventType::HandoffRejected]));
    assert!(with(|f| f.agent_id = "bob".parse().ok()));
    assert!(!with(|f| f.agent_id = "carol".parse().ok()));
    assert!(with(|f| f.task_id = Some(TaskId(Uuid::from_u128(7)))));
    assert!(!with(|f| f.task_id = Some(TaskId(Uuid::from_u128(8)))));
    assert!(!with(|f| {
        f.agent_id = "bob".parse().ok();
        f.types = vec![EventType::AlertRaised];
    }));
}

#[test]
fn positions_are_ordered_and_read_back() {
    let at = |leaf_index, ordinal| Position { leaf_index, ordinal };
    assert!(Position::START < at(0, 0) && at(0, 0) < at(0, 1) && at(0, 9) < at(1, 0));
    assert!(at(3, 70) < Position::behind(3) && Position::behind(3) < at(4, 0));
    for position in [Position::START, at(41, 2), Position::behind(9)] {
        assert_eq!(position.to_string().parse(), Ok(position));
        assert!(position.to_string().len() == 16 && !position.to_string().contains('.'));
        // The form of versions up to 0.3.0 (finding O10).
        let former = format!("{}.{}", position.leaf_index, position.ordinal);
        assert_eq!(former.parse(), Ok(position));
    }
    for bad in
        ["", "4", "4.", "-2.0", "4.-1", "4.1.2", "x.y", "AAAAAAAAAAAAAAA", "__________8AAAAA"]
    {
        assert!(bad.parse::<Position>().is_err(), "{bad}");
    }
}

#[test]
fn ids_sort_by_time_and_differ_within_a_record() {
    let hash = [0xab; 32];
    let (one, two) = (Event::id(Micros(5_000), &hash, 0), Event::id(Micros(5_000), &hash, 1));
    assert_ne!(one, two);
    assert_eq!(one, Event::id(Micros(5_000), &hash, 0));
    assert_eq!(one.get_version_num(), 7);
    assert!(Event::id(Micros(6_000), &[0; 32], 0) > two);
}

#[test]
fn subscribers_are_read_back() {
    let subscription = Subscriber::Subscription(SubscriptionId(Uuid::from_u128(3)));
    let agent = Subscriber::Agent("urn:a:1".parse().unwrap());
    for one in [subscription, agent] {
        assert_eq!(one.to_string().parse(), Ok(one));
    }
}
